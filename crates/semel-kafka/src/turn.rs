//! What one turn of polling brings: records are copied out of the client's memory without any lock, and put
//! where they wait together.

use std::collections::HashMap;
use std::sync::Arc;

use rdkafka::message::{BorrowedMessage, Message as _};

use crate::assignment::{Held, Index};
use crate::record::{self, Copier, Limits};
use crate::shared::Shared;

/// Records of this turn, and the names of partitions that were met before.
#[derive(Debug)]
pub(crate) struct Turn {
    limits: Limits,
    copier: Copier,
    held: Vec<(Index, Held)>,
    bytes: usize,
    /// By number, the topics that have it: nearly always one.
    known: HashMap<i32, Vec<Known>>,
}

/// A topic, and the partition's index and name.
type Known = (Arc<str>, Index, Arc<str>);

impl Turn {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            copier: Copier::default(),
            held: Vec::new(),
            bytes: 0,
            known: HashMap::new(),
        }
    }

    /// Bytes of this turn that do not wait to be received yet.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn take(&mut self, record: &BorrowedMessage<'_>, shared: &Shared) {
        let Ok(offset) = u64::try_from(record.offset()) else {
            return;
        };
        let (index, name) = self.find(record.topic(), record.partition(), shared);
        let (message, mark) = record::message(record, &name, self.limits, &mut self.copier);
        self.bytes += message.size();
        let held = Held {
            offset,
            message,
            mark,
        };
        self.held.push((index, held));
    }

    fn find(&mut self, topic: &str, number: i32, shared: &Shared) -> (Index, Arc<str>) {
        let topics = self.known.entry(number).or_default();
        if let Some((_, index, name)) = topics.iter().find(|(known, ..)| **known == *topic) {
            return (*index, name.clone());
        }
        let (index, name) = shared.lock().assignment.index(topic, number);
        topics.push((topic.into(), index, name.clone()));
        (index, name)
    }

    /// Ends the turn. Records of partitions that are not live any more, or not yet, are discarded there.
    pub(crate) fn end(&mut self, shared: &Shared) {
        self.bytes = 0;
        if self.held.is_empty() {
            return;
        }
        let mut state = shared.lock();
        for (index, held) in self.held.drain(..) {
            state.assignment.push(index, held);
        }
        drop(state);
        shared.arrived.notify_waiters();
    }
}
