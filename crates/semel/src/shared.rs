//! What the tasks of one consumer share: its parts, its counts, and the word to stop.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::ledger::{ConsumerId, SourceId};
use semel_core::source::SharedSource;
use semel_core::{Backoff, Class, Fault, Key};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use crate::flight::Flights;
use crate::known::Known;
use crate::observe::{Cause, Observer, State, Summary};
use crate::position::Tracker;
use crate::settings::Settings;

/// A line about a lasting trouble is logged once in this time, however often it is met.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// One source of the consumer.
pub(crate) struct Feed {
    pub(crate) name: String,
    pub(crate) id: SourceId,
    pub(crate) source: SharedSource,
    pub(crate) flow: Mutex<Flow>,
}

/// Whether a source has more to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Open,
    Drained,
    Ended,
}

/// See the module.
pub(crate) struct Shared<L, H> {
    pub(crate) name: String,
    pub(crate) ledger: Arc<L>,
    pub(crate) handler: Arc<H>,
    pub(crate) settings: Settings,
    pub(crate) consumer: ConsumerId,
    pub(crate) feeds: Vec<Feed>,
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) flights: Flights,
    pub(crate) known: Known,
    pub(crate) budget: Arc<Semaphore>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) outstanding: Arc<Outstanding>,
    summary: Mutex<Summary>,
    stop: watch::Sender<bool>,
    fault: Mutex<Option<Fault>>,
    pause: Mutex<Pause>,
    /// Parked messages that were said not to bind.
    unbound: Mutex<HashSet<Key>>,
}

/// So many parked messages that no longer bind are named in the log, each once.
const UNBOUND_TOLD_MAX: usize = 1_000;

#[derive(Debug, Default)]
struct Pause {
    parties: usize,
    logged: Option<Instant>,
}

impl<L, H> Shared<L, H> {
    pub(crate) fn new(
        name: String,
        parts: (Arc<L>, Arc<H>),
        settings: Settings,
        consumer: ConsumerId,
        feeds: Vec<Feed>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let budget = Arc::new(Semaphore::new(
            settings.memory_bytes_max.min(Semaphore::MAX_PERMITS),
        ));
        Self {
            name,
            ledger: parts.0,
            handler: parts.1,
            settings,
            consumer,
            feeds,
            tracker: Arc::default(),
            flights: Flights::default(),
            known: Known::default(),
            budget,
            observer,
            outstanding: Arc::default(),
            summary: Mutex::default(),
            stop: watch::Sender::new(false),
            fault: Mutex::default(),
            pause: Mutex::default(),
            unbound: Mutex::default(),
        }
    }

    pub(crate) fn summary(&self) -> MutexGuard<'_, Summary> {
        lock(&self.summary)
    }

    /// Says stop; the first fault is the one that `run` returns.
    pub(crate) fn stop(&self, fault: Option<Fault>) {
        if let Some(fault) = fault {
            tracing::error!(consumer = %self.name, error = %fault, "stopped to protect data");
            lock(&self.fault).get_or_insert(fault);
        }
        self.stop.send_replace(true);
        self.outstanding.changed.notify_waiters();
    }

    /// A look-up failed that is done again. One that can never succeed stops the consumer.
    pub(crate) fn unread(&self, fault: Fault, meanwhile: &str) {
        match fault.class {
            Class::Busy | Class::Down | Class::Retry => {
                tracing::debug!(error = %fault, "{meanwhile}")
            }
            Class::Stop | Class::Poison | Class::Unclassified => self.stop(Some(fault)),
        }
    }

    /// Whether a parked message that no longer binds is to be told of: once a key, within reason.
    pub(crate) fn is_news(&self, key: Key) -> bool {
        let mut unbound = lock(&self.unbound);
        unbound.len() < UNBOUND_TOLD_MAX && unbound.insert(key)
    }

    pub(crate) fn take_fault(&self) -> Option<Fault> {
        lock(&self.fault).take()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Returns when the word to stop is said.
    pub(crate) async fn stopped(&self) {
        // The sender lives as long as `self`.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Waits for a back-off's delay, or until the word to stop is said.
    pub(crate) async fn back_off(&self, policy: Backoff, retry: u32) {
        let delay = Duration::from_millis(policy.delay_ms(retry, (self.settings.dice)()));
        tokio::select! {
            biased;
            () = self.stopped() => {}
            () = tokio::time::sleep(delay) => {}
        }
    }

    /// One more part of the consumer waits for `reason`.
    pub(crate) fn pause(&self, by: Cause, reason: &str) {
        let mut pause = lock(&self.pause);
        pause.parties += 1;
        let now = Instant::now();
        if pause.logged.is_none_or(|at| now - at >= LOG_INTERVAL) {
            pause.logged = Some(now);
            tracing::warn!(consumer = %self.name, reason, "paused; nothing is acked or lost, it goes on by itself");
        }
        drop(pause);
        self.observer.state(&State::Paused {
            by,
            why: reason.to_owned(),
        });
    }

    /// Every part is there; those that wait say so themselves.
    pub(crate) fn started(&self) {
        if lock(&self.pause).parties == 0 {
            self.observer.state(&State::Running);
        }
    }

    /// One part that waited goes on.
    pub(crate) fn resume(&self) {
        let mut pause = lock(&self.pause);
        pause.parties -= 1;
        let last = pause.parties == 0;
        if last && pause.logged.take().is_some() {
            tracing::info!(consumer = %self.name, "running again");
        }
        drop(pause);
        if last {
            self.observer.state(&State::Running);
        }
    }

    /// Every source is drained or ended, and no message is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.feeds
            .iter()
            .all(|feed| *lock(&feed.flow) != Flow::Open)
            && self.outstanding.count() == 0
    }

    pub(crate) fn set_flow(&self, feed: usize, flow: Flow) {
        *lock(&self.feeds[feed].flow) = flow;
        self.outstanding.changed.notify_waiters();
    }
}

/// Locks a mutex whose holders never panic half-way through a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Messages under way.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    count: AtomicUsize,
    pub(crate) changed: Notify,
}

/// One message under way; ends on drop.
#[derive(Debug)]
pub(crate) struct Underway(Arc<Outstanding>);

impl Outstanding {
    pub(crate) fn begin(self: &Arc<Self>) -> Underway {
        self.count.fetch_add(1, Ordering::AcqRel);
        Underway(self.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}
