//! Compares the broker's facts with the ledger's when partitions are assigned, beside the client's thread:
//! the ledger may take its time, and polling never waits for it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use semel_core::Fault;
use semel_core::ledger::Mark;
use semel_core::source::Positions;

use crate::assignment::{Index, Phase};
use crate::mark;
use crate::options::StartAt;
use crate::probe::{Place, Probe};
use crate::shared::{Shared, Trouble};
use crate::verdict::{Before, Facts, Verdict, Word, judge};

/// Between two tries while the broker or the ledger is away.
const RETRY: Duration = Duration::from_millis(500);

/// What a comparison needs.
#[derive(Clone)]
pub(crate) struct Vetting {
    pub(crate) shared: Arc<Shared>,
    pub(crate) positions: Arc<dyn Positions>,
    /// A reader's settings.
    pub(crate) reader: ClientConfig,
    pub(crate) timeout: Duration,
    pub(crate) start_at: StartAt,
}

/// A partition to compare.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) index: Index,
    pub(crate) generation: u64,
    pub(crate) place: Place,
    pub(crate) name: Arc<str>,
}

impl Vetting {
    /// Compares until every subject is judged or no longer ours.
    pub(crate) async fn run(self, mut subjects: Vec<Subject>) {
        loop {
            {
                let state = self.shared.lock();
                let current = |s: &Subject| {
                    state
                        .assignment
                        .get(s.index)
                        .is_some_and(|p| p.generation == s.generation && p.phase == Phase::Vetting)
                };
                subjects.retain(current);
                if subjects.is_empty() || state.closing {
                    drop(state);
                    return self.shared.healed(Trouble::Vetting);
                }
            }
            let places: Vec<_> = subjects
                .iter()
                .map(|s| (s.place.clone(), s.name.clone()))
                .collect();
            match self.gather(places).await {
                Ok(facts) => {
                    self.shared.healed(Trouble::Vetting);
                    return self.conclude(&subjects, &facts);
                }
                Err(fault) if fault.class == semel_core::Class::Stop => {
                    return self.shared.fail(fault.detail());
                }
                Err(fault) => {
                    self.shared.trouble(
                        Trouble::Vetting,
                        format!("positions cannot be compared yet: {fault}"),
                    );
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    fn conclude(&self, subjects: &[Subject], facts: &HashMap<Place, Facts>) {
        for subject in subjects {
            let Some(facts) = facts.get(&subject.place) else {
                continue;
            };
            match judge(&subject.name, facts, self.start_at) {
                Verdict::Stop(text) => {
                    if facts.alarmed {
                        let mut state = self.shared.lock();
                        state.assignment.alarm(&subject.place.0);
                    }
                    self.shared.fail(text);
                }
                Verdict::Start { start, removed } => {
                    if removed > 0 {
                        tracing::error!(partition = %subject.name, removed, from = start.offset, "the broker's retention removed offsets that nothing has handled; going on behind them");
                    }
                    if facts.ledger.is_some() && facts.committed.is_none() {
                        tracing::warn!(partition = %subject.name, offset = start.offset, "the group's offset is gone (expired or deleted); the ledger's position stands in for it");
                    }
                    if facts.is_forgotten() {
                        tracing::warn!(partition = %subject.name, offset = start.offset, "the group's offset was told by a ledger that had a position here, and this one has none (restored, or another one): all that the broker still has is read again");
                    }
                    if let Some(passed) = facts.passed_over(start.offset) {
                        tracing::warn!(partition = %subject.name, passed, offset = start.offset, "a first start behind the group's offset, as `start_at` says; `start_at = \"committed\"` goes on there");
                    }
                    tracing::info!(partition = %subject.name, offset = start.offset, end = start.end, "assigned");
                    let mut state = self.shared.lock();
                    let (index, generation) = (subject.index, subject.generation);
                    state.assignment.vetted(index, generation, start);
                    if facts.before == Before::Same
                        && let Some((next, mark)) = &facts.ledger
                    {
                        let record = (next.saturating_sub(1), mark.clone());
                        state.assignment.anchor(index, generation, record);
                    }
                }
            }
        }
        self.shared.wake();
    }

    /// The facts of all places, in the order that [`Facts`] asks for.
    pub(crate) async fn gather(
        &self,
        subjects: Vec<(Place, Arc<str>)>,
    ) -> Result<HashMap<Place, Facts>, Fault> {
        let places: Vec<Place> = subjects.iter().map(|(place, _)| place.clone()).collect();
        let (reader, timeout) = (self.reader.clone(), self.timeout);
        let (probe, mut committed) = blocking(move || {
            let probe = Probe::open(&reader, timeout)?;
            let committed = probe.committed(&with_neighbours(&probe, places))?;
            Ok((probe, committed))
        })
        .await?;
        let alarmed: HashSet<String> = committed
            .iter()
            .filter(|(_, offset)| offset.word == Word::Alarm)
            .map(|((topic, _), _)| topic.clone())
            .collect();
        let ledger = self.ledger(&subjects).await;
        let kept = self.positions.are_kept();
        let start_at = self.start_at;
        blocking(move || {
            let mut ledger = ledger?;
            let mut facts = HashMap::new();
            for (place, _) in subjects {
                let (low, high) = probe.ends(&place)?;
                let (committed, ledger) = (committed.remove(&place), ledger.remove(&place));
                let alarmed = alarmed.contains(&place.0);
                facts.insert(
                    place,
                    Facts {
                        committed,
                        ledger,
                        kept,
                        alarmed,
                        low,
                        high,
                        before: Before::Gone,
                        at_time: None,
                    },
                );
            }
            look_before(&probe, &mut facts)?;
            if let StartAt::Timestamp(at_ms) = start_at {
                let asked: Vec<_> = facts
                    .iter()
                    .filter(|(_, f)| f.ledger.is_none())
                    .map(|(p, _)| p.clone())
                    .collect();
                for (place, offset) in probe.at_time(&asked, at_ms)? {
                    facts
                        .entry(place)
                        .and_modify(|facts| facts.at_time = Some(offset));
                }
            }
            // Partitions wait for the facts, and nobody for the probe's end.
            tokio::task::spawn_blocking(move || drop(probe));
            Ok(facts)
        })
        .await
    }

    /// The ledger's positions.
    async fn ledger(
        &self,
        subjects: &[(Place, Arc<str>)],
    ) -> Result<HashMap<Place, (u64, Mark)>, Fault> {
        let mut ledger = HashMap::new();
        for (place, name) in subjects {
            if let Some(reached) = self.positions.reached(name).await? {
                ledger.insert(place.clone(), (reached.next, reached.mark));
            }
        }
        Ok(ledger)
    }
}

/// These, and the other partitions of their topics: an alarm holds for a topic, and the one who raised it may have had some of
/// its partitions only.
fn with_neighbours(probe: &Probe, mut places: Vec<Place>) -> Vec<Place> {
    let topics: HashSet<String> = places.iter().map(|(topic, _)| topic.clone()).collect();
    for topic in topics {
        // A topic that is away is told by who reads it.
        for number in probe.partitions(&topic).unwrap_or_default() {
            places.push((topic.clone(), number));
        }
    }
    places.sort_unstable();
    places.dedup();
    places
}

/// Reads the records before the ledger's positions again, where they can still be there.
fn look_before(probe: &Probe, facts: &mut HashMap<Place, Facts>) -> Result<(), Fault> {
    let at = |facts: &Facts| -> Option<(u64, Mark)> {
        let (next, mark) = facts.ledger.as_ref()?;
        let before = next
            .checked_sub(1)
            .filter(|before| *before >= facts.low && *next <= facts.high)?;
        mark::is_known(mark).then(|| (before, mark.clone()))
    };
    let asked: Vec<_> = facts
        .iter()
        .filter_map(|(place, facts)| Some((place.clone(), at(facts)?.0)))
        .collect();
    let found = probe.first_records(&asked)?;
    for (place, before) in asked {
        if let Some((offset, mark)) = found.get(&place)
            && let Some(facts) = facts.get_mut(&place)
            && *offset == before
        {
            let same = facts
                .ledger
                .as_ref()
                .is_some_and(|(_, stored)| stored == mark);
            facts.before = if same { Before::Same } else { Before::Other };
        }
    }
    Ok(())
}

/// Runs what blocks where blocking is allowed.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(lost) => Err(Fault::down(format!(
            "kafka: a look at the broker did not end: {lost}"
        ))),
    }
}
