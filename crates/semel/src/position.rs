//! How far each partition is done: the highest position below which every message is settled by a
//! committed unit, or by the unit that is about to commit. Knows slots, not brokers.
//!
//! What is done but stands behind something unfinished waits here. It keeps its share of the memory budget, so one
//! message that does not end cannot let a window grow without limit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use semel_core::ledger::{Mark, Reached, SourceId};
use tokio::sync::OwnedSemaphorePermit;

/// A delivery's place in its partition's window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    window: Arc<Name>,
    number: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    source: SourceId,
    partition: Arc<str>,
    generation: u64,
}

#[derive(Debug)]
struct Entry {
    offset: u64,
    mark: Mark,
    done: bool,
    /// Its share of the memory budget, until the position passes it.
    _permit: Option<OwnedSemaphorePermit>,
}

/// What an entry holds: itself, a mark of up to 64 bytes with its reference count, and the place that the source keeps for
/// it (some 200 bytes in Kafka's).
pub(crate) const ENTRY_BYTES: usize = 384;

/// Deliveries of one partition that are not yet behind its position.
#[derive(Debug, Default)]
struct Window {
    /// Number of the first entry.
    first: u64,
    entries: VecDeque<Entry>,
    /// Reached by commits, and whether a committed unit has written it.
    reached: Option<(u64, Mark)>,
    written: u64,
}

impl Window {
    /// The last entry of the done prefix, if `also` are counted as done.
    fn prefix(&self, also: &[u64]) -> Option<(u64, Mark)> {
        let mut also = also.iter().copied().peekable();
        let mut last = None;
        for (number, entry) in (self.first..).zip(&self.entries) {
            while also.next_if(|&n| n < number).is_some() {}
            if !entry.done && also.peek() != Some(&number) {
                break;
            }
            last = Some(entry);
        }
        last.map(|entry| (entry.offset + 1, entry.mark.clone()))
            .or_else(|| self.reached.clone())
    }

    fn finish(&mut self, numbers: &[u64]) {
        for number in numbers {
            let index =
                usize::try_from(number - self.first).expect("a window is far smaller than memory");
            if let Some(entry) = self.entries.get_mut(index) {
                entry.done = true;
            }
        }
        while self.entries.front().is_some_and(|entry| entry.done) {
            if let Some(entry) = self.entries.pop_front() {
                self.reached = Some((entry.offset + 1, entry.mark));
            }
            self.first += 1;
        }
    }
}

/// The windows of all partitions of a consumer.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    windows: Mutex<BTreeMap<Arc<Name>, Window>>,
}

impl Tracker {
    /// Opens a slot for a delivery, which keeps `permit` until the position passes it. Deliveries of one partition must come in order. A new generation
    /// (the partition was assigned anew) starts a new window; the old one is forgotten.
    pub(crate) fn open(
        &self,
        source: SourceId,
        partition: &Arc<str>,
        generation: u64,
        offset: u64,
        mark: Mark,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Slot {
        let mut windows = self.lock();
        let name = Name {
            source,
            partition: partition.clone(),
            generation,
        };
        let known = windows.get_key_value(&name).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| {
            windows.retain(|other, _| other.source != source || other.partition != *partition);
            Arc::new(name)
        });
        let window = windows.entry(name.clone()).or_default();
        let number = window.first + window.entries.len() as u64;
        window.entries.push_back(Entry {
            offset,
            mark,
            done: false,
            _permit: permit,
        });
        Slot {
            window: name,
            number,
        }
    }

    /// The positions a unit may write that settles `slots`: those that rise.
    pub(crate) fn reach<'s>(&self, slots: impl Iterator<Item = &'s Slot>) -> Vec<Reached> {
        let windows = self.lock();
        let mut reached = Vec::new();
        for (name, numbers) in grouped(slots) {
            let Some(window) = windows.get(&name) else {
                continue;
            };
            if let Some((next, mark)) = window.prefix(&numbers)
                && next > window.written
            {
                reached.push(Reached {
                    source: name.source,
                    partition: name.partition.clone(),
                    next,
                    mark,
                });
            }
        }
        reached
    }

    /// Positions that commits have reached and no committed unit has written.
    pub(crate) fn unwritten(&self) -> Vec<Reached> {
        let windows = self.lock();
        let ahead = windows.iter().filter_map(|(name, window)| {
            let (next, mark) = window.reached.clone()?;
            (next > window.written).then(|| Reached {
                source: name.source,
                partition: name.partition.clone(),
                next,
                mark,
            })
        });
        ahead.collect()
    }

    /// A unit committed: its slots are done, and `written` is in the database.
    pub(crate) fn committed<'s>(&self, slots: impl Iterator<Item = &'s Slot>, written: &[Reached]) {
        let mut windows = self.lock();
        for (name, numbers) in grouped(slots) {
            if let Some(window) = windows.get_mut(&name) {
                window.finish(&numbers);
            }
        }
        for position in written {
            for (_, window) in windows.iter_mut().filter(|(name, _)| {
                name.source == position.source && name.partition == position.partition
            }) {
                window.written = window.written.max(position.next);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Arc<Name>, Window>> {
        // Nothing under this lock can panic half-way through a change.
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Slot numbers by window, each sorted; windows in order, so that a run repeats itself.
fn grouped<'s>(slots: impl Iterator<Item = &'s Slot>) -> BTreeMap<Arc<Name>, Vec<u64>> {
    let mut groups: BTreeMap<Arc<Name>, Vec<u64>> = BTreeMap::new();
    let slots: Vec<&Slot> = slots.collect();
    // Neighbours are mostly of one window, so the map is asked once for a run.
    for run in slots.chunk_by(|a, b| Arc::ptr_eq(&a.window, &b.window)) {
        let numbers = groups.entry(run[0].window.clone()).or_default();
        numbers.extend(run.iter().map(|slot| slot.number));
    }
    groups
        .values_mut()
        .for_each(|numbers: &mut Vec<u64>| numbers.sort_unstable());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: SourceId = SourceId(1);

    fn open(tracker: &Tracker, generation: u64, offset: u64) -> Slot {
        let mark = Mark::copy_from_slice(&offset.to_be_bytes());
        tracker.open(SOURCE, &"p".into(), generation, offset, mark, None)
    }

    fn next(reached: &[Reached]) -> Vec<u64> {
        reached.iter().map(|r| r.next).collect()
    }

    #[test]
    fn a_position_never_passes_an_unsettled_message() {
        let tracker = Tracker::default();
        let slots: Vec<_> = [1, 2, 5, 6].map(|o| open(&tracker, 0, o)).into();
        assert_eq!(next(&tracker.reach(slots[1..3].iter())), Vec::<u64>::new());
        tracker.committed(slots[1..3].iter(), &[]);
        assert_eq!(next(&tracker.unwritten()), Vec::<u64>::new());
        assert_eq!(
            next(&tracker.reach(slots[..1].iter())),
            [6],
            "gaps of the broker do not stall it"
        );
        let written = tracker.reach(slots[..1].iter());
        tracker.committed(slots[..1].iter(), &written);
        assert_eq!(next(&tracker.unwritten()), Vec::<u64>::new());
        assert_eq!(next(&tracker.reach(slots[3..].iter())), [7]);
    }

    #[test]
    fn what_another_lane_completed_is_left_for_the_idle_unit() {
        let tracker = Tracker::default();
        let slots: Vec<_> = [1, 2].map(|o| open(&tracker, 0, o)).into();
        tracker.committed(slots[1..].iter(), &[]);
        let written_without_the_other = Vec::new();
        tracker.committed(slots[..1].iter(), &written_without_the_other);
        assert_eq!(next(&tracker.unwritten()), [3]);
    }

    #[test]
    fn a_new_assignment_forgets_the_old_window() {
        let tracker = Tracker::default();
        let old = open(&tracker, 1, 10);
        let new = open(&tracker, 2, 10);
        assert_eq!(next(&tracker.reach([&old].into_iter())), Vec::<u64>::new());
        tracker.committed([&old].into_iter(), &[]);
        assert_eq!(next(&tracker.reach([&new].into_iter())), [11]);
    }
}
