//! What is away, as `/readyz` tells it. Written by the tasks that look, and by the engine when it waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

/// A part that can be away.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The ledger's database, as the looks find it.
    Store,
    /// A source of a consumer.
    Source(String, String),
    /// The store as a consumer's units find it: it may answer looks and still let no unit through.
    Units(String),
}

/// A look that ended longer ago than this says nothing any more.
const STALE: Duration = Duration::from_secs(8);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Board {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    consumers: BTreeSet<String>,
    /// The last look at each part: when, and why it is away.
    looks: BTreeMap<Part, Look>,
}

#[derive(Debug, Default)]
struct Look {
    at: Option<Instant>,
    away: Option<String>,
}

/// What `/readyz` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    pub(crate) ready: bool,
    /// Every consumer is started, and none is stopping.
    pub(crate) running: bool,
    pub(crate) store: Health,
    pub(crate) consumers: Vec<ConsumerHealth>,
}

/// A consumer's part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ConsumerHealth {
    pub(crate) name: String,
    /// Why its units do not get through, though the store answers; mostly null.
    pub(crate) waits: Option<String>,
    pub(crate) sources: Vec<SourceHealth>,
}

/// A source's part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SourceHealth {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) health: Health,
}

/// Is something there, and if not, why?
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Health {
    pub(crate) up: bool,
    pub(crate) why: Option<String>,
}

impl Look {
    /// Of units: the engine tells changes only, so they are never stale.
    fn waits(&self) -> Option<String> {
        match self.at {
            None => Some("it is starting".to_owned()),
            Some(_) => self.away.clone(),
        }
    }
}

impl Health {
    fn of(look: Option<&Look>) -> Self {
        let why = match look {
            None | Some(Look { at: None, .. }) => Some("not looked at yet".to_owned()),
            Some(Look {
                away: Some(why), ..
            }) => Some(why.clone()),
            Some(Look { at: Some(at), .. }) if at.elapsed() > STALE => {
                Some(format!("no answer for {} s", at.elapsed().as_secs()))
            }
            Some(_) => None,
        };
        Self {
            up: why.is_none(),
            why,
        }
    }
}

impl Board {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All consumers take messages from here on, or none does any more.
    pub(crate) fn running(&self, running: bool) {
        self.state().running = running;
    }

    /// There is such a part. It is away until a look says otherwise.
    pub(crate) fn expect(&self, part: &Part) {
        let mut state = self.state();
        if let Part::Source(consumer, _) | Part::Units(consumer) = part {
            state.consumers.insert(consumer.clone());
        }
        state.looks.entry(part.clone()).or_default();
    }

    /// A look ended: `away` says why, if the part is.
    pub(crate) fn looked(&self, part: &Part, away: Option<String>) {
        let look = Look {
            at: Some(Instant::now()),
            away,
        };
        self.state().looks.insert(part.clone(), look);
    }

    pub(crate) fn report(&self) -> Report {
        let state = self.state();
        let store = Health::of(state.looks.get(&Part::Store));
        let consumers: Vec<ConsumerHealth> = state
            .consumers
            .iter()
            .map(|name| ConsumerHealth {
                name: name.clone(),
                waits: state
                    .looks
                    .get(&Part::Units(name.clone()))
                    .and_then(Look::waits),
                sources: state.sources(name),
            })
            .collect();
        let all_well = |consumer: &ConsumerHealth| {
            consumer.waits.is_none() && consumer.sources.iter().all(|source| source.health.up)
        };
        Report {
            ready: state.running && store.up && consumers.iter().all(all_well),
            running: state.running,
            store,
            consumers,
        }
    }
}

impl State {
    fn sources(&self, consumer: &str) -> Vec<SourceHealth> {
        let sources = self.looks.iter().filter_map(|(part, look)| match part {
            Part::Source(of, name) if of == consumer => Some(SourceHealth {
                name: name.clone(),
                health: Health::of(Some(look)),
            }),
            Part::Source(..) | Part::Store | Part::Units(_) => None,
        });
        sources.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Part {
        Part::Source("wallet".to_owned(), "ops".to_owned())
    }

    fn well() -> Board {
        let board = Board::default();
        board.expect(&Part::Store);
        board.expect(&source());
        board.running(true);
        board.looked(&Part::Store, None);
        board.looked(&source(), None);
        board
    }

    #[test]
    fn ready_means_that_every_part_was_looked_at_and_is_there() {
        let board = well();
        assert!(board.report().ready);
        for part in [Part::Store, source(), Part::Units("wallet".to_owned())] {
            board.looked(&part, Some("away".to_owned()));
            assert!(!board.report().ready, "{part:?}");
            board.looked(&part, None);
            assert!(board.report().ready, "{part:?}");
        }
        board.running(false);
        assert!(!board.report().ready);
    }

    #[test]
    fn a_consumer_whose_lanes_are_not_open_yet_is_not_ready() {
        let board = well();
        board.expect(&Part::Units("wallet".to_owned()));
        let report = board.report();
        assert!(!report.ready);
        assert_eq!(report.consumers[0].waits.as_deref(), Some("it is starting"));
    }

    #[test]
    fn what_was_never_looked_at_or_not_for_long_is_away() {
        let board = well();
        let other = Part::Source("wallet".to_owned(), "other".to_owned());
        board.expect(&other);
        let report = board.report();
        assert!(!report.ready);
        assert_eq!(
            report.consumers[0].sources[1].health.why.as_deref(),
            Some("not looked at yet")
        );
        board.looked(&other, None);
        assert!(board.report().ready);
        let Some(long_ago) = Instant::now().checked_sub(STALE * 2) else {
            return; // a machine that has just started cannot name such a time
        };
        board.state().looks.insert(
            Part::Store,
            Look {
                at: Some(long_ago),
                away: None,
            },
        );
        let why = board.report().store.why.unwrap();
        assert!(why.starts_with("no answer for "), "{why}");
    }
}
