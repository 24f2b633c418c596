//! What the async side and the client's thread share: the assignment, and what is wrong.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::Fault;
use tokio::sync::{Notify, watch};

use crate::assignment::Assignment;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Something changed that a waiting `receive` wants to see.
    pub(crate) arrived: Notify,
    /// Something changed that the client's thread waits for.
    changed: Condvar,
    pub(crate) ended: watch::Sender<bool>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) assignment: Assignment,
    /// What waits to heal, by its kind.
    troubles: BTreeMap<Trouble, String>,
    /// Why nothing more is handed out.
    fatal: Option<String>,
    pub(crate) closing: bool,
}

/// Kinds of trouble; each heals by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// No broker answers.
    Broker,
    /// A topic is gone, or we may not read it.
    Topic,
    /// The broker's facts or the ledger's could not be had for an assigned partition.
    Vetting,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            arrived: Notify::new(),
            changed: Condvar::new(),
            ended: watch::Sender::new(false),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Tells both sides that something changed.
    pub(crate) fn wake(&self) {
        self.changed();
        self.arrived.notify_waiters();
    }

    /// Tells the client's thread: the buffer may have room, or what is handed out is settled.
    pub(crate) fn changed(&self) {
        self.changed.notify_all();
    }

    /// Waits until `done` or the time is over. Says whether it is done.
    pub(crate) fn wait(&self, time: Duration, mut done: impl FnMut(&State) -> bool) -> bool {
        let guard = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(guard, time, |state| !done(state));
        let (_guard, over) = waited.unwrap_or_else(PoisonError::into_inner);
        !over.timed_out()
    }

    /// Something is wrong that heals by itself. Said once until it is over.
    pub(crate) fn trouble(&self, kind: Trouble, text: String) {
        let mut state = self.lock();
        let old = state.troubles.insert(kind, text);
        if old.is_none() {
            tracing::warn!(
                reason = state.troubles[&kind],
                "kafka: waiting; it goes on by itself"
            );
        }
        drop(state);
        self.wake();
    }

    /// It is over.
    pub(crate) fn healed(&self, kind: Trouble) {
        if self.lock().troubles.remove(&kind).is_some() {
            tracing::info!("kafka: going on");
            self.wake();
        }
    }

    pub(crate) fn fail(&self, text: String) {
        self.lock().fatal.get_or_insert(text);
        self.wake();
    }
}

impl State {
    pub(crate) fn is_troubled(&self, kind: Trouble) -> bool {
        self.troubles.contains_key(&kind)
    }

    /// What `receive` says when there is nothing to hand out.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let stop = self.fatal.clone().map(Fault::stop);
        stop.or_else(|| self.troubles.values().next().cloned().map(Fault::down))
    }

    /// As [`Self::fault`], of what does not heal.
    pub(crate) fn stop(&self) -> Option<Fault> {
        self.fatal.clone().map(Fault::stop)
    }
}

/// Locks a mutex whose holders never panic half-way through a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
