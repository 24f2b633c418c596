//! Looks again and again whether a topic is still the one that is read. A topic that is deleted and made again under a
//! running member tells it nothing: the library goes on in the new one at the old one's offset, and what lies below would
//! never be read (TRAPS T57). So a record that this member knows is read anew; another one in its place, or an end
//! before it, is another topic.

use std::collections::BTreeMap;
use std::time::Duration;

use semel_core::Fault;
use semel_core::ledger::Mark;

use crate::assignment::Index;
use crate::probe::{Place, Probe};
use crate::vetting::{Vetting, blocking};

/// Between two looks: what is noticed later costs an operator no more, and a look costs a connection and a fetch a topic.
const PERIOD: Duration = Duration::from_secs(5);

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
        let looked = blocking(move || {
            let probe = Probe::open(&reader, timeout)?;
            anchors
                .into_iter()
                .map(|anchor| Ok((look(&probe, &anchor)?, anchor)))
                .collect::<Result<Vec<_>, Fault>>()
        });
        match looked.await {
            Ok(seen) => seen
                .iter()
                .for_each(|(seen, anchor)| conclude(&vetting, *seen, anchor)),
            // Away, or deleted and not there yet: others tell that, and the next look comes.
            Err(fault) => {
                tracing::debug!(error = %fault, "kafka: not looked whether topics are the same")
            }
        }
    }
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

fn conclude(vetting: &Vetting, seen: Seen, anchor: &Anchor) {
    let mut state = vetting.shared.lock();
    match seen {
        Seen::Same => {}
        Seen::Gone => state
            .assignment
            .lift_anchor(anchor.index, anchor.generation),
        Seen::Other => {
            let text = state.assignment.alarm(&anchor.place.0);
            drop(state);
            if let Some(text) = text {
                vetting.shared.fail(text);
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
