//! Between the thread that reads and the engine that asks: a bounded channel, and memory of what is out,
//! so that a nacked message comes again.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use semel_core::Fault;
use semel_core::message::{Cut, Headers, Message, Position};
use semel_core::source::{Delivery, Limit, Receipt, Received, Settle, Settled, Settlements};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::lines::Line;
use crate::mark::MARK_BYTES;

/// Chunks read ahead: with those of 32 KiB, half a MiB.
pub(crate) const CHUNKS_MAX: usize = 16;

/// The header of a line or record that may be half written: its dead letter says why.
const INCOMPLETE: (&str, &[u8]) = (
    "incomplete",
    b"the last line of the file has no line end, so it may be half written; end it, and run again",
);

/// Whether the source can be read again from a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resumable {
    Yes,
    No,
}

/// Lines of one partition, as the reading thread hands them over.
#[derive(Debug)]
pub(crate) struct Chunk {
    items: Vec<Item>,
}

/// A line on its way, or kept while it is out.
#[derive(Debug, Clone)]
struct Item {
    partition: u32,
    number: u64,
    payload: Bytes,
    cut: Option<Cut>,
    mark: Option<Bytes>,
    partial: bool,
    attempt: u32,
}

impl Chunk {
    /// Packs lines of one partition; their marks share one piece of memory.
    pub(crate) fn new(partition: u32, lines: Vec<Line>, resumable: Resumable) -> Self {
        let mut marks = Vec::with_capacity(lines.len() * MARK_BYTES);
        if resumable == Resumable::Yes {
            lines.iter().for_each(|line| line.mark.write(&mut marks));
        }
        let marks = Bytes::from(marks);
        let item = |(i, line): (usize, Line)| Item {
            partition,
            number: line.number,
            payload: line.payload,
            cut: line.cut,
            partial: resumable == Resumable::Yes && line.partial,
            mark: (resumable == Resumable::Yes && !line.partial)
                .then(|| marks.slice(i * MARK_BYTES..(i + 1) * MARK_BYTES)),
            attempt: 1,
        };
        Self {
            items: lines.into_iter().enumerate().map(item).collect(),
        }
    }
}

#[derive(Debug)]
struct Pending {
    chunks: mpsc::Receiver<Result<Chunk, Fault>>,
    ready: VecDeque<Item>,
    /// Told when all that was read before it has been handed out.
    fault: Option<Fault>,
    ended: bool,
}

impl Pending {
    fn take(&mut self, chunk: Option<Result<Chunk, Fault>>) {
        match chunk {
            Some(Ok(chunk)) => self.ready.extend(chunk.items),
            Some(Err(fault)) => self.fault = Some(fault),
            None => self.ended = true,
        }
    }

    /// Takes what has been read already, until there is enough to hand out.
    fn fill(&mut self, count: usize) {
        while self.ready.len() < count && self.fault.is_none() && !self.ended {
            match self.chunks.try_recv() {
                Ok(chunk) => self.take(Some(chunk)),
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => self.ended = true,
            }
        }
    }
}

/// What is out, by tag. Tags are handed out in order, so a queue is a map.
#[derive(Debug, Default)]
struct Out {
    /// The tag of the front of `items`.
    first: u64,
    items: VecDeque<Option<Item>>,
    again: BTreeMap<(Instant, u64), Item>,
    count: usize,
}

/// The engine's end.
#[derive(Debug)]
pub(crate) struct Intake {
    generation: u64,
    partitions: Vec<Arc<str>>,
    /// Of whole lines, and of one that may be half written.
    headers: [Headers; 2],
    pending: tokio::sync::Mutex<Pending>,
    out: Mutex<Out>,
    settled: Notify,
}

/// What to do next.
enum Next {
    Hand(Vec<Delivery>),
    End,
    Wait(Option<Instant>),
}

impl Intake {
    pub(crate) fn new(
        partitions: Vec<Arc<str>>,
        chunks: mpsc::Receiver<Result<Chunk, Fault>>,
    ) -> Self {
        Self {
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            partitions,
            headers: [
                Arc::new([]),
                Arc::new([(INCOMPLETE.0.to_owned(), Bytes::from_static(INCOMPLETE.1))]),
            ],
            pending: tokio::sync::Mutex::new(Pending {
                chunks,
                ready: VecDeque::new(),
                fault: None,
                ended: false,
            }),
            out: Mutex::new(Out {
                first: 1,
                ..Out::default()
            }),
            settled: Notify::new(),
        }
    }

    /// See `Source::receive`. Cancel-safe: what was read and not handed out waits in `pending`.
    pub(crate) async fn receive(&self, limit: Limit) -> Result<Received, Fault> {
        let mut pending = self.pending.lock().await;
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            let due = match self.next(&mut pending, limit)? {
                Next::Hand(batch) => return Ok(Received::Batch(batch)),
                Next::End => return Ok(Received::End),
                Next::Wait(due) => due,
            };
            let reading = !pending.ended;
            tokio::select! {
                chunk = pending.chunks.recv(), if reading => pending.take(chunk),
                () = settled => {}
                () = until(due) => {}
            }
        }
    }

    fn next(&self, pending: &mut Pending, limit: Limit) -> Result<Next, Fault> {
        let mut hand = Hand {
            batch: Vec::new(),
            bytes: 0,
            limit,
        };
        let mut out = self.out();
        let now = Instant::now();
        while let Some(entry) = out.again.first_entry().filter(|entry| entry.key().0 <= now) {
            if !hand.fits(entry.get()) {
                return Ok(Next::Hand(hand.batch));
            }
            let item = entry.remove();
            hand.add(self.deliver(&mut out, item));
        }
        pending.fill(limit.count);
        while let Some(item) = pending.ready.pop_front() {
            if !hand.fits(&item) {
                pending.ready.push_front(item);
                break;
            }
            hand.add(self.deliver(&mut out, item));
        }
        if !hand.batch.is_empty() {
            return Ok(Next::Hand(hand.batch));
        }
        if let Some(fault) = pending.fault.take() {
            return Err(fault);
        }
        if pending.ended && out.count == 0 && out.again.is_empty() {
            return Ok(Next::End);
        }
        Ok(Next::Wait(out.again.keys().next().map(|(due, _)| *due)))
    }

    fn deliver(&self, out: &mut Out, item: Item) -> Delivery {
        let tag = out.first + out.items.len() as u64;
        let partition = usize::try_from(item.partition).expect("an index of a list fits");
        let message = Message {
            payload: Some(item.payload.clone()),
            cut: item.cut,
            headers: self.headers[usize::from(item.partial)].clone(),
            position: Position {
                partition: self.partitions[partition].clone(),
                offset: Some(item.number),
            },
            message_key: None,
            attempt: item.attempt,
            timestamp_ms: None,
        };
        let receipt = Receipt::new(
            self.generation,
            item.partition,
            NonZeroU64::new(tag).expect("tags start at 1"),
        );
        let mark = item.mark.clone();
        out.items.push_back(Some(item));
        out.count += 1;
        Delivery {
            receipt,
            message,
            mark,
        }
    }

    /// See `Source::settle`.
    pub(crate) fn settle(&self, settlements: &Settlements) -> Settled {
        let now = Instant::now();
        let mut out = self.out();
        let mut settled = Settled::default();
        for settlement in &settlements.receipts {
            let (tag, verdict) = (settlement.receipt().tag().get(), settlement.verdict());
            let known = settlement.receipt().generation() == self.generation;
            match (verdict, if known { out.take(tag) } else { None }) {
                (Settle::Ack, Some(_)) | (Settle::Nack { .. }, None) => {}
                (Settle::Ack, None) => settled.lost += 1,
                (Settle::Nack { delay_ms }, Some(mut item)) => {
                    item.attempt = item.attempt.saturating_add(1);
                    let due = now
                        .checked_add(Duration::from_millis(delay_ms))
                        .unwrap_or(now);
                    out.again.insert((due, tag), item);
                }
            }
        }
        drop(out);
        self.settled.notify_waiters();
        settled
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out
            .lock()
            .expect("no code panics while it holds the list")
    }
}

/// Every opening is a generation, so that a receipt never settles a line of another opening (T40).
static GENERATIONS: AtomicU64 = AtomicU64::new(1);

impl Out {
    fn take(&mut self, tag: u64) -> Option<Item> {
        let index = usize::try_from(tag.checked_sub(self.first)?).ok()?;
        let item = self.items.get_mut(index)?.take()?;
        self.count -= 1;
        while let Some(None) = self.items.front() {
            self.items.pop_front();
            self.first += 1;
        }
        Some(item)
    }
}

/// A batch being filled.
struct Hand {
    batch: Vec<Delivery>,
    bytes: usize,
    limit: Limit,
}

impl Hand {
    fn fits(&self, item: &Item) -> bool {
        /// As [`Message::size`] counts a message without headers; a little more does not matter.
        const OVERHEAD: usize = 256;
        let room = self.bytes.saturating_add(OVERHEAD + item.payload.len()) <= self.limit.bytes;
        self.batch.is_empty() || (self.batch.len() < self.limit.count && room)
    }

    fn add(&mut self, delivery: Delivery) {
        self.bytes += delivery.message.size();
        self.batch.push(delivery);
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
