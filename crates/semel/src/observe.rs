//! What a consumer tells the outside: how deliveries ended, after their commit, and whether it runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use semel_core::law::Ending;
use semel_core::{Code, Key, Outcome};

/// A delivery that ended, told after the commit that made it so.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Index of the source among those that were attached, in the order in which their names were given.
    pub source: usize,
    /// Number of the delivery within its source and partition, from 0, in the order of arrival.
    pub sequence: u64,
    /// The partition.
    pub partition: Arc<str>,
    /// The place in the partition, where it has one.
    pub offset: Option<u64>,
    /// The key's source text.
    pub id: Option<String>,
    /// The key.
    pub key: Option<Key>,
    /// How it ended.
    pub ending: Ending,
    /// It was delivered before: by the broker's own count, or because it lies below the stored position.
    pub redelivered: bool,
}

/// A unit that committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitDone {
    /// Messages that it ended: 0 when it only touched the lane's fence or wrote positions.
    pub messages: usize,
    /// From the opening of its transaction until its commit was known.
    pub elapsed: Duration,
    /// Dead letters that were not there before.
    pub new_letters: u64,
    /// Same key, other content.
    pub clashes: u64,
}

/// What a consumer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The ledger's database.
    Store,
    /// A source, by its index.
    Source(usize),
}

/// Whether a consumer takes messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It does: told when its lanes are open and its sources are read, and when nothing of it waits any more.
    Running,
    /// Some part of it waits; messages stay unsettled. Told for each part that begins to wait.
    Paused {
        /// What for.
        by: Cause,
        /// In words.
        why: String,
    },
}

/// Listens to a consumer. Calls come from its tasks: be quick, do not block.
pub trait Observer: Send + Sync {
    /// Deliveries ended, in the order of their unit.
    fn ended(&self, _ended: Vec<Ended>) {}

    /// A delivery went back to its source without an outcome: no `Ended` will come for it.
    fn passed(&self, _source: usize, _partition: &Arc<str>, _sequence: u64) {}

    /// A message that was parked ended.
    fn released(&self, _outcome: Outcome, _code: Option<&Code>) {}

    /// A unit committed.
    fn unit(&self, _done: &UnitDone) {}

    /// So many acks may not have reached the broker of this source: it delivers again.
    fn lost_acks(&self, _source: usize, _count: u64) {}

    /// The consumer paused or went on.
    fn state(&self, _state: &State) {}
}

/// An observer that does not listen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deaf;

impl Observer for Deaf {}

/// Counts of a run. `messages` counts deliveries with an outcome and is the sum of `outcomes`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Deliveries that ended.
    pub messages: u64,
    /// Deliveries by outcome.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Deliveries by code (ignored, refused, dead).
    pub codes: BTreeMap<Code, u64>,
    /// Parked messages that ended in this run, by outcome.
    pub released: BTreeMap<Outcome, u64>,
    /// Dead letters that were not there before.
    pub new_letters: u64,
    /// Same key, other content.
    pub clashes: u64,
    /// Acks that may not have reached the broker.
    pub lost_acks: u64,
    /// Units committed.
    pub units: u64,
    /// How long it ran.
    pub elapsed: Duration,
}

impl Summary {
    pub(crate) fn count(&mut self, ending: &Ending) {
        self.messages += 1;
        *self.outcomes.entry(ending.outcome).or_default() += 1;
        if let Some(code) = &ending.code {
            *self.codes.entry(code.clone()).or_default() += 1;
        }
    }
}
