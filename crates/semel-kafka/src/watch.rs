//! Looks again and again whether a topic is still the one that is read. A topic that is deleted and made again under a
//! running member tells it nothing: the library goes on in the new one at the old one's offset, and what lies below would
//! never be read (TRAPS T57). So a record that this member knows is read anew, now and then and before it gives a partition
//! up; another one in its place, or an end before it, is another topic.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::ClientConfig;
use semel_core::Fault;
use semel_core::ledger::Mark;

use crate::assignment::Index;
use crate::probe::{Place, Probe};
use crate::shared::{Shared, Trouble};
use crate::vetting::{Vetting, blocking};

/// Between two looks: what is noticed later costs an operator no more, and a look costs a connection and a fetch a topic.
const PERIOD: Duration = Duration::from_secs(5);

/// The last look at what is given up takes no longer: whoever waits for a rebalance or an end waits for it.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// A record of a live partition that this member knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) index: Index,
    pub(crate) generation: u64,
    pub(crate) place: Place,
    pub(crate) offset: u64,
    pub(crate) mark: Mark,
}

/// What a look at an anchor's place found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Same,
    /// Removed by retention or compaction: the next record that comes takes its place.
    Gone,
    /// Another topic, or its tail was lost.
    Other,
}

/// Looks until the source is closed.
pub(crate) async fn run(vetting: Vetting) {
    let mut turn = 0;
    loop {
        tokio::time::sleep(PERIOD).await;
        let anchors = {
            let state = vetting.shared.lock();
            if state.closing {
                return;
            }
            one_of_each_topic(state.assignment.anchors(), turn)
        };
        turn += 1;
        if anchors.is_empty() {
            continue;
        }
        let (reader, timeout) = (vetting.reader.clone(), vetting.timeout);
        let looked = blocking(move || looks(&reader, timeout, anchors));
        match looked.await {
            Ok(seen) => seen
                .iter()
                .for_each(|(seen, anchor)| conclude(&vetting.shared, *seen, anchor)),
            Err(fault) => unseen(&fault),
        }
    }
}

/// Looks a last time before partitions are given up, of these or of all: the next owner's known records may be the new
/// topic's. Blocks.
pub(crate) fn last_look(vetting: &Vetting, of: Option<&[Index]>) {
    let anchors = {
        let state = vetting.shared.lock();
        if state.is_troubled(Trouble::Broker) {
            return;
        }
        let mut anchors = state.assignment.anchors();
        anchors.retain(|anchor| of.is_none_or(|of| of.contains(&anchor.index)));
        one_of_each_topic(anchors, 0)
    };
    if anchors.is_empty() {
        return;
    }
    match looks(&vetting.reader, vetting.timeout.min(LAST_LOOK), anchors) {
        Ok(seen) => seen
            .iter()
            .for_each(|(seen, anchor)| conclude(&vetting.shared, *seen, anchor)),
        Err(fault) => unseen(&fault),
    }
}

/// What the anchors' places hold; those that cannot be looked at are left out.
fn looks(
    reader: &ClientConfig,
    timeout: Duration,
    anchors: Vec<Anchor>,
) -> Result<Vec<(Seen, Anchor)>, Fault> {
    let probe = Probe::open(reader, timeout)?;
    let look = |anchor: Anchor| match look(&probe, &anchor) {
        Ok(seen) => Some((seen, anchor)),
        Err(fault) => {
            unseen(&fault);
            None
        }
    };
    Ok(anchors.into_iter().filter_map(look).collect())
}

/// Away, or deleted and not there yet: others tell that, and the next look comes.
fn unseen(fault: &Fault) {
    tracing::debug!(error = %fault, "kafka: not looked whether a topic is the same");
}

/// A topic is made again as a whole, so one of its partitions is enough; each has its turn.
fn one_of_each_topic(anchors: Vec<Anchor>, turn: usize) -> Vec<Anchor> {
    let mut topics: BTreeMap<String, Vec<Anchor>> = BTreeMap::new();
    for anchor in anchors {
        topics
            .entry(anchor.place.0.clone())
            .or_default()
            .push(anchor);
    }
    topics
        .into_values()
        .map(|mut anchors| anchors.swap_remove(turn % anchors.len()))
        .collect()
}

fn look(probe: &Probe, anchor: &Anchor) -> Result<Seen, Fault> {
    let (low, high) = probe.ends(&anchor.place)?;
    if high <= anchor.offset {
        return Ok(Seen::Other);
    }
    if low > anchor.offset {
        return Ok(Seen::Gone);
    }
    let found = probe.first_records(&[(anchor.place.clone(), anchor.offset)])?;
    Ok(match found.get(&anchor.place) {
        Some((offset, mark)) if *offset == anchor.offset && *mark == anchor.mark => Seen::Same,
        Some((offset, _)) if *offset == anchor.offset => Seen::Other,
        _ => Seen::Gone,
    })
}

fn conclude(shared: &Shared, seen: Seen, anchor: &Anchor) {
    let mut state = shared.lock();
    match seen {
        Seen::Same => {}
        Seen::Gone => state
            .assignment
            .lift_anchor(anchor.index, anchor.generation),
        Seen::Other => {
            let text = state.assignment.alarm(&anchor.place.0);
            drop(state);
            if let Some(text) = text {
                shared.fail(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_of_a_topic_has_its_turn() {
        let anchor = |topic: &str, number| Anchor {
            index: 0,
            generation: 1,
            place: (topic.to_owned(), number),
            offset: 0,
            mark: Mark::new(),
        };
        let all = vec![anchor("a", 0), anchor("b", 0), anchor("a", 1)];
        let places = |turn| -> Vec<_> {
            let chosen = one_of_each_topic(all.clone(), turn);
            chosen.into_iter().map(|anchor| anchor.place).collect()
        };
        assert_eq!(places(0), [("a".to_owned(), 0), ("b".to_owned(), 0)]);
        assert_eq!(places(1), [("a".to_owned(), 1), ("b".to_owned(), 0)]);
    }
}
