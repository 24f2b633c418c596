//! What a consumer tells the outside: how deliveries ended, after their commit, and whether it runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use semel_core::law::Ending;
use semel_core::{Code, Key, Outcome};

/// A delivery that ended, told after the commit that made it so.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Index of the source, in the order in which the consumer was given them.
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
}

/// Whether a consumer takes messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It does.
    Running,
    /// It waits; messages stay unsettled.
    Paused(String),
}

/// Listens to a consumer. Calls come from its tasks: be quick, do not block.
pub trait Observer: Send + Sync {
    /// Deliveries ended, in the order of their unit.
    fn ended(&self, _ended: Vec<Ended>) {}

    /// A delivery went back to its source without an outcome: no `Ended` will come for it.
    fn passed(&self, _source: usize, _partition: &Arc<str>, _sequence: u64) {}

    /// A message that was parked ended.
    fn released(&self, _outcome: Outcome, _code: Option<&Code>) {}

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
