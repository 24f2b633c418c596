//! The simulated broker: at-least-once, with every liberty that word leaves it.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use semel_core::Fault;
use semel_core::message::{Message, Position};
use semel_core::sink::{IDEMPOTENCY_KEY, Outgoing, Sink};
use semel_core::source::{
    BoxFuture, Delivery, Limit, Receipt, Received, Settle, Settled, Settlements, Source,
};
use tokio::sync::Notify;

use crate::dice::Dice;

/// Liberties of the simulated broker, each in per mille of its occasions, until the budget is spent.
#[derive(Debug, Clone, Default)]
pub struct SourceFaults {
    /// How many faults may still happen; then it is calm.
    pub budget: u32,
    /// A message is delivered although it is out already.
    pub duplicate: u16,
    /// A message changes places with the one behind it (of the same partition too).
    pub reorder: u16,
    /// The channel breaks: a new generation, all that is out is delivered again, late acks are lost.
    pub break_off: u16,
    /// The broker is away for one call.
    pub down: u16,
}

#[derive(Debug, Clone)]
struct Entry {
    at: usize,
    attempt: u32,
}

#[derive(Debug)]
struct State {
    log: Vec<Message>,
    acked: Vec<bool>,
    waiting: VecDeque<Entry>,
    out: BTreeMap<u64, Entry>,
    generation: u64,
    tag: u64,
    closed: bool,
    drained_told: bool,
    dice: Dice,
    faults: SourceFaults,
}

/// A broker with one consumer. Clones share it.
///
/// It is a queue: an acked message is gone, any other comes again after its channel broke. Positions
/// it hands out survive redelivery, but it cannot be read again from one (no marks).
#[derive(Debug, Clone)]
pub struct SimSource {
    state: Arc<Mutex<State>>,
    moved: Arc<Notify>,
}

impl SimSource {
    /// An empty broker; the seed decides which liberties it takes once they are allowed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            log: Vec::new(),
            acked: Vec::new(),
            waiting: VecDeque::new(),
            out: BTreeMap::new(),
            generation: 1,
            tag: 0,
            closed: false,
            drained_told: false,
            dice: Dice::new(seed),
            faults: SourceFaults::default(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            moved: Arc::new(Notify::new()),
        }
    }

    /// Allows liberties, until their budget is spent.
    pub fn set_faults(&self, faults: SourceFaults) {
        self.state().faults = faults;
    }

    /// Publishes a message.
    pub fn push(&self, message: Message) {
        let mut state = self.state();
        let at = state.log.len();
        state.log.push(message);
        state.acked.push(false);
        state.waiting.push_back(Entry { at, attempt: 1 });
        state.drained_told = false;
        drop(state);
        self.moved.notify_waiters();
    }

    /// Publishes a payload to a partition; its offset is its number in the whole log, from 1.
    pub fn push_payload(&self, partition: &str, payload: impl Into<Bytes>) {
        let offset = u64::try_from(self.state().log.len()).expect("a simulated log is short") + 1;
        self.push(Message::new(payload, partition, Some(offset)));
    }

    /// Nothing will be published any more: the source ends when all is acked.
    pub fn close(&self) {
        self.state().closed = true;
        self.moved.notify_waiters();
    }

    /// Breaks the channel: all that is out will be delivered again, receipts of now are stale.
    pub fn break_off(&self) {
        self.state().break_off();
        self.moved.notify_waiters();
    }

    /// How many messages were never acked.
    #[must_use]
    pub fn unacked(&self) -> usize {
        self.state().acked.iter().filter(|acked| !**acked).count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no code panics while it holds the broker")
    }
}

impl State {
    fn strikes(&mut self, chance: impl Fn(&SourceFaults) -> u16) -> bool {
        let hit = self.faults.budget > 0 && self.dice.hit(chance(&self.faults));
        if hit {
            self.faults.budget -= 1;
        }
        hit
    }

    fn break_off(&mut self) {
        self.generation += 1;
        let mut again: Vec<Entry> = std::mem::take(&mut self.out).into_values().collect();
        again.extend(self.waiting.drain(..));
        again.sort_by_key(|entry| entry.at);
        again.dedup_by_key(|entry| entry.at);
        self.waiting = again
            .into_iter()
            .filter(|entry| !self.acked[entry.at])
            .collect();
        for entry in &mut self.waiting {
            entry.attempt += 1;
        }
    }

    fn deliver(&mut self, entry: Entry) -> Delivery {
        self.tag += 1;
        let tag = NonZeroU64::new(self.tag).expect("tags start at 1");
        let mut message = self.log[entry.at].clone();
        message.attempt = entry.attempt;
        self.out.insert(self.tag, entry);
        Delivery {
            receipt: Receipt::new(self.generation, 0, tag),
            message,
            mark: None,
        }
    }

    /// What can be said now; `None` when the caller has to wait.
    fn next(&mut self, limit: Limit) -> Option<Result<Received, Fault>> {
        if self.strikes(|f| f.down) {
            return Some(Err(Fault::down("the broker is away")));
        }
        if self.strikes(|f| f.break_off) {
            self.break_off();
        }
        let mut batch: Vec<Delivery> = Vec::new();
        let mut bytes = 0;
        while batch.len() < limit.count.max(1) {
            if self.waiting.len() > 1 && self.strikes(|f| f.reorder) {
                self.waiting.swap(0, 1);
            }
            let Some(entry) = self.waiting.pop_front() else {
                break;
            };
            let size = self.log[entry.at].size();
            if !batch.is_empty() && bytes + size > limit.bytes {
                self.waiting.push_front(entry);
                break;
            }
            bytes += size;
            if self.strikes(|f| f.duplicate) {
                self.waiting.push_back(Entry {
                    at: entry.at,
                    attempt: entry.attempt + 1,
                });
            }
            batch.push(self.deliver(entry));
        }
        if !batch.is_empty() {
            return Some(Ok(Received::Batch(batch)));
        }
        if !self.out.is_empty() {
            return None;
        }
        if self.closed {
            return Some(Ok(Received::End));
        }
        let tell = !std::mem::replace(&mut self.drained_told, true);
        tell.then_some(Ok(Received::Drained))
    }

    fn settle(&mut self, settlements: &Settlements) -> Settled {
        let mut settled = Settled::default();
        let mut again = Vec::new();
        for settlement in &settlements.receipts {
            let receipt = settlement.receipt();
            let known = receipt.generation() == self.generation;
            let entry = if known {
                self.out.remove(&receipt.tag().get())
            } else {
                None
            };
            match (settlement.verdict(), entry) {
                (Settle::Ack, Some(entry)) => self.acked[entry.at] = true,
                (Settle::Ack, None) => settled.lost += 1,
                (Settle::Nack { .. }, Some(entry)) => {
                    again.push(Entry {
                        at: entry.at,
                        attempt: entry.attempt + 1,
                    });
                }
                (Settle::Nack { .. }, None) => {}
            }
        }
        again.sort_by_key(|entry| entry.at);
        again
            .into_iter()
            .rev()
            .for_each(|entry| self.waiting.push_front(entry));
        settled
    }
}

/// What is published is delivered: the broker as a sink.
impl Sink for SimSource {
    fn publish<'a>(&'a self, messages: &'a [Outgoing]) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            if self.state().strikes(|f| f.down) {
                return Err(Fault::down("the broker is away"));
            }
            for message in messages {
                let offset =
                    u64::try_from(self.state().log.len()).expect("a simulated log is short") + 1;
                let stamp = message
                    .key
                    .map(|key| (IDEMPOTENCY_KEY.to_owned(), Bytes::from(key.to_string())));
                self.push(Message {
                    payload: message.payload.clone(),
                    cut: None,
                    headers: stamp
                        .into_iter()
                        .chain(message.headers.iter().cloned())
                        .collect(),
                    position: Position {
                        partition: "sim".into(),
                        offset: Some(offset),
                    },
                    message_key: message.message_key.clone(),
                    attempt: 1,
                    timestamp_ms: None,
                });
            }
            Ok(())
        })
    }
}

impl Source for SimSource {
    fn receive(&self, limit: Limit) -> BoxFuture<'_, Result<Received, Fault>> {
        Box::pin(async move {
            loop {
                let mut moved = std::pin::pin!(self.moved.notified());
                moved.as_mut().enable();
                let next = self.state().next(limit);
                if let Some(next) = next {
                    return next;
                }
                moved.await;
            }
        })
    }

    fn settle(&self, settlements: Settlements) -> BoxFuture<'_, Result<Settled, Fault>> {
        Box::pin(async move {
            let settled = {
                let mut state = self.state();
                if state.strikes(|f| f.down) {
                    state.break_off();
                    Err(Fault::down("the broker is away: its receipts are stale"))
                } else {
                    Ok(state.settle(&settlements))
                }
            };
            self.moved.notify_waiters();
            settled
        })
    }
}
