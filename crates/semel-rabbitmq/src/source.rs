//! A queue of RabbitMQ as a source. A task keeps one channel open; a new channel is a new generation,
//! and what belonged to an older one is dropped: the broker delivers it again, and the ledger knows.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::source::{BoxFuture, Settle, Settled, Settlement};
use semel_core::{
    Backoff, Delivery, Fault, Limit, Message, Receipt, Received, Settlements, Source,
};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::fault::{Refusal, down};
use crate::options::RabbitOptions;
use crate::session::{Ending, Lost, Session};

/// Generations are counted for the whole process: a receipt never fits another source's channel, nor
/// that of a source which was opened again (TRAPS T40).
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// A channel that is back within this time was no outage worth telling.
const GRACE: Duration = Duration::from_secs(1);

/// While it lasts, an outage is told again after this.
const RETELL: Duration = Duration::from_secs(1);

/// A session that lived this long shows that connecting works: the back-off starts anew.
const STEADY: Duration = Duration::from_secs(10);

/// A queue of RabbitMQ: one partition, named like the queue, without positions.
///
/// Dropping it closes the connection; what is unsettled then is delivered again.
pub struct RabbitSource {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
}

/// How the queue looked when the broker was asked last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    /// Messages that wait for a consumer.
    pub ready: u32,
    /// Consumers, this one included.
    pub consumers: u32,
}

/// What there is to know of a source for metrics and readiness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Why there is no channel; `None` while there is one.
    pub away: Option<Refusal>,
    /// The queue, from at most some seconds ago; `None` while there is no channel.
    pub depth: Option<Depth>,
    /// The generation: it rises with every channel.
    pub generation: u64,
    /// Deliveries that are unsettled, those waiting to be received included.
    pub unsettled: usize,
    /// Acks that may not have arrived, since the start.
    pub lost_acks: u64,
}

/// What one `settle` asks of the session.
pub(crate) struct Order {
    pub(crate) acks: Vec<NonZeroU64>,
    /// Tag and delay.
    pub(crate) nacks: Vec<(NonZeroU64, Duration)>,
    /// Takes the number of lost acks.
    pub(crate) reply: oneshot::Sender<usize>,
}

/// What the session and the callers of the source share.
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    channel: Channel,
    generation: u64,
    ready: VecDeque<(NonZeroU64, Message)>,
    drained: Drained,
    depth: Option<Depth>,
    unsettled: usize,
    lost_acks: u64,
    /// Of these, what no caller was told yet.
    lost_late: usize,
}

enum Channel {
    Open {
        orders: mpsc::UnboundedSender<Order>,
    },
    Away {
        since: Instant,
        reason: Refusal,
        certain: bool,
        told: bool,
    },
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drained {
    No,
    Untold,
    Told,
}

enum Look {
    Found(Result<Received, Fault>),
    Wait(Option<Instant>),
}

impl RabbitSource {
    /// Connects, looks for the queue (or declares it) and starts to consume.
    ///
    /// # Errors
    /// `Down` with a [`Refusal`] inside that names what is wrong: options, an unreachable broker, the
    /// login, the vhost, the queue, rights. It takes twice `connect_timeout_ms` at most, and two seconds
    /// for a goodbye to a broker that refused.
    pub async fn open(options: RabbitOptions) -> Result<Self, Fault> {
        options.validate().map_err(down)?;
        let session = Session::open(&options, options.prefetch)
            .await
            .map_err(down)?;
        let shared = Arc::new(Shared::new());
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = watch::channel(false);
        let keeper = Keeper {
            options,
            shared: shared.clone(),
            stopped,
        };
        // Announced here, so that nothing handed out before the task runs is missed.
        let orders = shared.open();
        tokio::spawn(async move {
            keeper.keep(session, orders).await;
            end.send_replace(true);
        });
        Ok(Self {
            shared,
            stop,
            ended,
        })
    }

    /// What there is to know for metrics and readiness.
    #[must_use]
    pub fn status(&self) -> Status {
        let state = self.shared.state();
        let away = match &state.channel {
            Channel::Open { .. } => None,
            Channel::Away { reason, .. } => Some(reason.clone()),
            Channel::Closed => Some(Refusal::ended("it was closed here")),
        };
        Status {
            away,
            depth: state.depth,
            generation: state.generation,
            unsettled: state.unsettled,
            lost_acks: state.lost_acks,
        }
    }

    /// Closes the connection and waits until the broker has taken in all acks, for some seconds at most.
    /// After it `receive` says `End`, and every ack is lost.
    pub async fn close(&self) {
        self.stop.send_replace(true);
        // An error says that the task is gone, which is what we wait for.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}

impl Drop for RabbitSource {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

impl std::fmt::Debug for RabbitSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitSource")
            .field("status", &self.status())
            .finish()
    }
}

impl Source for RabbitSource {
    fn receive(&self, limit: Limit) -> BoxFuture<'_, Result<Received, Fault>> {
        Box::pin(self.shared.receive(limit))
    }

    fn settle(&self, settlements: Settlements) -> BoxFuture<'_, Result<Settled, Fault>> {
        Box::pin(async move {
            Ok(Settled {
                lost: self.shared.settle(settlements.receipts).await,
            })
        })
    }
}

impl Shared {
    fn new() -> Self {
        let state = State {
            channel: Channel::Closed,
            generation: 0,
            ready: VecDeque::new(),
            drained: Drained::No,
            depth: None,
            unsettled: 0,
            lost_acks: 0,
            lost_late: 0,
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    async fn receive(&self, limit: Limit) -> Result<Received, Fault> {
        let asked = Instant::now();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that nothing that comes in between is missed.
            changed.as_mut().enable();
            let look = self.state().look(limit, asked);
            match look {
                Look::Found(found) => return found,
                Look::Wait(None) => changed.await,
                Look::Wait(Some(until)) => drop(tokio::time::timeout_at(until, changed).await),
            }
        }
    }

    /// Hands the receipts of this generation to the session. Returns the number of lost acks.
    async fn settle(&self, receipts: Vec<Settlement>) -> usize {
        let (answer, sent, mut lost) = self.order(receipts);
        if let Some(answer) = answer {
            // Without an answer the session ended before or while it acked.
            lost += answer.await.unwrap_or(sent);
        }
        let mut state = self.state();
        state.lost_acks += u64::try_from(lost).unwrap_or(u64::MAX);
        lost + std::mem::take(&mut state.lost_late)
    }

    /// Acks of earlier calls turned out to be lost: the next call tells.
    pub(crate) fn lose(&self, count: usize) {
        let mut state = self.state();
        state.lost_acks += u64::try_from(count).unwrap_or(u64::MAX);
        state.lost_late += count;
    }

    /// Returns the answer to wait for, the acks it is about, and the acks that are lost already.
    fn order(&self, receipts: Vec<Settlement>) -> (Option<oneshot::Receiver<usize>>, usize, usize) {
        let state = self.state();
        let (mut acks, mut nacks, mut lost) = (Vec::with_capacity(receipts.len()), Vec::new(), 0);
        for settlement in receipts {
            let (receipt, verdict) = (settlement.receipt(), settlement.verdict());
            let current = receipt.generation() == state.generation
                && matches!(state.channel, Channel::Open { .. });
            match verdict {
                Settle::Ack if current => acks.push(receipt.tag()),
                Settle::Ack => lost += 1,
                Settle::Nack { delay_ms } if current => {
                    nacks.push((receipt.tag(), Duration::from_millis(delay_ms)))
                }
                // The broker has taken it back with its channel.
                Settle::Nack { .. } => {}
            }
        }
        let count = acks.len();
        let Channel::Open { orders } = &state.channel else {
            return (None, 0, lost);
        };
        if acks.is_empty() && nacks.is_empty() {
            return (None, 0, lost);
        }
        let (reply, answer) = oneshot::channel();
        match orders.send(Order { acks, nacks, reply }) {
            Ok(()) => (Some(answer), count, lost),
            Err(_) => (None, 0, lost + count),
        }
    }

    /// A channel is open: a new generation. Returns where its orders come from.
    pub(crate) fn open(&self) -> mpsc::UnboundedReceiver<Order> {
        let (sender, orders) = mpsc::unbounded_channel();
        let mut state = self.state();
        state.generation = GENERATION.fetch_add(1, Ordering::Relaxed);
        state.channel = Channel::Open { orders: sender };
        state.drained = Drained::No;
        drop(state);
        self.changed.notify_waiters();
        orders
    }

    /// The channel is gone, or still is. What it delivered and nobody took is forgotten: its acks would
    /// be lost (TRAPS T42).
    fn away(&self, reason: Refusal, certain: bool) {
        let mut state = self.state();
        state.forget();
        state.channel = match &state.channel {
            Channel::Away {
                since,
                certain: before,
                told,
                ..
            } => Channel::Away {
                since: *since,
                reason,
                certain: certain || *before,
                told: *told,
            },
            Channel::Open { .. } | Channel::Closed => Channel::Away {
                since: Instant::now(),
                reason,
                certain,
                told: false,
            },
        };
        drop(state);
        self.changed.notify_waiters();
    }

    fn closed(&self) {
        let mut state = self.state();
        state.forget();
        state.channel = Channel::Closed;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Deliveries came.
    pub(crate) fn deliver(&self, deliveries: Vec<(NonZeroU64, Message)>, unsettled: usize) {
        let mut state = self.state();
        state.ready.extend(deliveries);
        state.drained = Drained::No;
        state.unsettled = unsettled;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Deliveries were settled.
    pub(crate) fn settled(&self, unsettled: usize) {
        self.state().unsettled = unsettled;
    }

    /// The broker said how the queue is.
    pub(crate) fn seen(&self, depth: Depth) {
        self.state().depth = Some(depth);
    }

    /// The queue is drained.
    pub(crate) fn drained(&self) {
        let mut state = self.state();
        if state.drained == Drained::No {
            state.drained = Drained::Untold;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Is there anything new to say of it?
    pub(crate) fn knows_it_is_drained(&self) -> bool {
        self.state().drained != Drained::No
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn look(&mut self, limit: Limit, asked: Instant) -> Look {
        match &mut self.channel {
            Channel::Closed => Look::Found(Ok(Received::End)),
            Channel::Away {
                since,
                reason,
                certain,
                told,
            } => {
                let tell_at = match (*told, *certain) {
                    (true, _) => asked + RETELL,
                    (false, true) => asked,
                    (false, false) => *since + GRACE,
                };
                if Instant::now() < tell_at {
                    return Look::Wait(Some(tell_at));
                }
                *told = true;
                Look::Found(Err(down(reason.clone())))
            }
            Channel::Open { .. } if !self.ready.is_empty() => {
                Look::Found(Ok(Received::Batch(self.take(limit))))
            }
            Channel::Open { .. } if self.drained == Drained::Untold => {
                self.drained = Drained::Told;
                Look::Found(Ok(Received::Drained))
            }
            Channel::Open { .. } => Look::Wait(None),
        }
    }

    fn take(&mut self, limit: Limit) -> Vec<Delivery> {
        let mut batch = Vec::with_capacity(limit.count.min(self.ready.len()));
        let mut bytes = limit.bytes;
        while batch.len() < limit.count.max(1)
            && let Some((tag, message)) = self.ready.pop_front()
        {
            let size = message.size();
            if size > bytes && !batch.is_empty() {
                self.ready.push_front((tag, message));
                break;
            }
            bytes = bytes.saturating_sub(size);
            batch.push(Delivery {
                receipt: Receipt::new(self.generation, 0, tag),
                message,
                mark: None,
            });
        }
        batch
    }

    fn forget(&mut self) {
        self.ready.clear();
        self.depth = None;
        self.unsettled = 0;
        self.drained = Drained::No;
    }
}

/// Keeps a session: when one ends, it opens the next. The client's own recovery stays off (TRAPS T43).
struct Keeper {
    options: RabbitOptions,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
}

impl Keeper {
    async fn keep(mut self, first: Session, orders: mpsc::UnboundedReceiver<Order>) {
        let mut current = Some((first, orders));
        let mut prefetch = self.options.prefetch;
        let mut failures = 0;
        loop {
            if let Some((session, orders)) = current.take() {
                let began = Instant::now();
                let (ending, learned) = session.run(&self.shared, orders, &mut self.stopped).await;
                prefetch = learned;
                match ending {
                    Ending::Stopped => break,
                    Ending::Lost(Lost { reason, silent }) => {
                        tracing::info!(queue = %self.options.queue, %reason, "the channel is gone; opening another");
                        self.shared.away(reason, silent);
                    }
                }
                if began.elapsed() >= STEADY {
                    failures = 0;
                }
            }
            if failures > 0 && !self.back_off(failures - 1).await {
                break;
            }
            failures += 1;
            current = tokio::select! {
                biased;
                () = stop(&mut self.stopped) => break,
                opened = Session::open(&self.options, prefetch) => match opened {
                    Ok(session) => Some((session, self.shared.open())),
                    Err(reason) => {
                        tracing::debug!(queue = %self.options.queue, %reason, "not yet");
                        self.shared.away(reason, true);
                        None
                    }
                },
            };
        }
        self.shared.closed();
    }

    /// Waits before the next try. `false` when it is to stop.
    async fn back_off(&mut self, retry: u32) -> bool {
        let delay = Duration::from_millis(Backoff::DOWN.delay_ms(retry, rand::random()));
        tokio::select! {
            biased;
            () = stop(&mut self.stopped) => false,
            () = tokio::time::sleep(delay) => true,
        }
    }
}

/// Returns when the source is to stop, or is gone.
pub(crate) async fn stop(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
