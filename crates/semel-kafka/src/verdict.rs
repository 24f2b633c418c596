//! Where a partition starts, or why it must not: compares the ledger's position with the group's offset and
//! with what the partition holds. A pure function of facts, so that every case is a row of a test.
//!
//! | ledger's position | group's offset | then |
//! |---|---|---|
//! | any | of some partition of the topic told with an alarm | stop: the topic was made again while it was read |
//! | beyond the partition's end, or its mark is not the record's | any | stop: the topic was made again |
//! | `next` | more than `next` | stop: the database lost commits it had confirmed |
//! | `next` | `next` or less | start at the group's offset: ordinary redelivery, counted as replay |
//! | `next` | none (expired, deleted) | start at `next` |
//! | none | told by a unit, and `start_at` is not `earliest` | stop: the database lost its first commits, or is another one |
//! | none | any other | a first start: `start_at` decides |
//!
//! **Why the group's offset, when the ledger's position is ahead of it?** The position proves that all below
//! it is settled, so starting there would be safe, too. But the broker's offset is the one that operators
//! know how to move: a group that was set back on purpose is to be read again, and what the ledger knows
//! comes out as duplicates. The price is small: after a crash, what was committed and not yet told. A
//! missing offset is no such wish, so there the ledger's position stands in (TRAPS T55).

use semel_core::ledger::Mark;

use crate::assignment::Start;
use crate::options::StartAt;

/// What is known of a partition when it is assigned. Gathered in this order: first the group's offset, then
/// the ledger's position, then the ends. A member that just left may commit meanwhile, and every offset it
/// told was in the ledger before; read the other way round it would look like lost commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) committed: Option<Offset>,
    pub(crate) ledger: Option<(u64, Mark)>,
    /// The ledger keeps positions of this source.
    pub(crate) kept: bool,
    /// The group was told of some partition of the topic that it was made again while it was read.
    pub(crate) alarmed: bool,
    /// The first offset the broker still has.
    pub(crate) low: u64,
    /// The end: behind the last record of a finished transaction.
    pub(crate) high: u64,
    pub(crate) before: Before,
    /// The first offset of the time asked for, if the partition has one.
    pub(crate) at_time: Option<u64>,
}

impl Facts {
    /// Another tool's offset of the group that a first start at `offset` leaves behind.
    pub(crate) fn passed_over(&self, offset: u64) -> Option<u64> {
        let committed = self.committed.filter(|_| self.ledger.is_none())?;
        (committed.word == Word::Foreign && committed.next < offset).then_some(committed.next)
    }

    fn word(&self) -> Option<Word> {
        self.committed.map(|committed| committed.word)
    }

    /// The group's offset was written by a unit, of which this ledger knows nothing.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.kept && self.ledger.is_none() && self.word() == Some(Word::Reached)
    }
}

/// The group's committed offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset {
    pub(crate) next: u64,
    pub(crate) word: Word,
}

/// What an offset's metadata say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// A committed unit of some ledger wrote it, or it stood in for one.
    Reached,
    /// The place of a first start, before anything was handled; or an operator's rewind.
    Start,
    /// The topic was made again while it was read.
    Alarm,
    /// Another client's.
    Foreign,
}

impl Word {
    /// As it is written.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Reached => "semel",
            Self::Start => "semel start",
            Self::Alarm => "semel: made again",
            Self::Foreign => "",
        }
    }

    pub(crate) fn of(text: &str) -> Self {
        let own = [Self::Reached, Self::Start, Self::Alarm];
        let said = own.into_iter().find(|word| word.text() == text);
        said.unwrap_or(Self::Foreign)
    }
}

/// The record before the ledger's position, read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// It bears the stored mark.
    Same,
    /// Another record is at its place.
    Other,
    /// Removed by retention or compaction, or it cannot be compared.
    Gone,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Start {
        start: Start,
        /// Offsets that the broker removed before anything handled them.
        removed: u64,
    },
    /// Going on could skip or repeat messages unseen.
    Stop(String),
}

/// Judges one partition.
pub(crate) fn judge(name: &str, facts: &Facts, start_at: StartAt) -> Verdict {
    if facts.alarmed {
        return Verdict::Stop(made_again(name));
    }
    match &facts.ledger {
        Some((next, _)) => known(name, *next, facts),
        None => first(name, facts, start_at),
    }
}

/// Why a partition stops whose topic is another one since it is read. A later start stops as well, until an operator has
/// decided: the ledger's position is one of the new topic by then, and looks right.
pub(crate) fn made_again(name: &str) -> String {
    format!(
        "kafka {name}: the topic was deleted and made again while it was read. Reading went on at the old one's offset, so \
         records of the new one below it may never have been handed out. `semel rewind SOURCE` reads the new topic from its beginning \
         (what is known comes out as duplicates)"
    )
}

fn known(name: &str, next: u64, facts: &Facts) -> Verdict {
    let Facts {
        committed,
        low,
        high,
        before,
        ..
    } = facts;
    if next > *high {
        return Verdict::Stop(format!(
            "kafka {name}: the ledger has handled everything below offset {next}, but the partition ends at {high}. The topic was deleted and made again, or the broker lost its tail. \
             Nothing was handed out. `semel doctor` shows both numbers; if the new topic is right, `semel rewind` sets the ledger's position back"
        ));
    }
    if *before == Before::Other {
        return Verdict::Stop(format!(
            "kafka {name}: the record at offset {} is not the one the ledger has handled there (its position is {next}, the partition ends at {high}). The topic was deleted and made again. \
             Nothing was handed out. `semel doctor` shows more; if the new topic is right, `semel rewind` sets the ledger's position back",
            next.saturating_sub(1)
        ));
    }
    match committed {
        Some(offset) if offset.next > next => Verdict::Stop(format!(
            "kafka {name}: the group's committed offset is {}, ahead of the ledger's position {next}. The broker is told only what the ledger has committed, so the database lost commits (a restore, a failover). \
             Nothing was handed out. `semel doctor` shows both numbers; `semel rewind` reads the source again from the ledger's position",
            offset.next
        )),
        Some(offset) => start(offset.next.max(*low), facts, None, low.saturating_sub(next)),
        None => start(
            next.max(*low),
            facts,
            (*low <= next).then_some(Word::Reached),
            low.saturating_sub(next),
        ),
    }
}

fn first(name: &str, facts: &Facts, start_at: StartAt) -> Verdict {
    let Facts {
        committed,
        low,
        high,
        at_time,
        ..
    } = facts;
    let begin = |offset: u64| {
        let tell = committed.is_none_or(|committed| committed.next != offset);
        start(offset, facts, tell.then_some(Word::Start), 0)
    };
    match start_at {
        StartAt::Earliest => begin(*low),
        // These could go on behind what this ledger has never handled.
        _ if facts.is_forgotten() => Verdict::Stop(forgotten(name, facts)),
        // Where an earlier start found the end: what came since then was not handled, and is not skipped.
        StartAt::Latest => match committed {
            Some(offset) if offset.word == Word::Start => begin(offset.next.clamp(*low, *high)),
            _ => begin(*high),
        },
        // The same holds where no record is of that time yet.
        StartAt::Timestamp(_) => {
            let at_time = at_time.unwrap_or(*high);
            match committed {
                Some(offset) if offset.word == Word::Start => {
                    begin(at_time.min(offset.next).max(*low))
                }
                _ => begin(at_time),
            }
        }
        StartAt::Committed => match committed {
            Some(offset) if offset.next > *high => Verdict::Stop(format!(
                "kafka {name}: start_at = \"committed\", but the group's offset {} is beyond the partition's end {high}: the topic was made again. Set start_at to what is right for the new topic",
                offset.next
            )),
            Some(offset) => start(
                offset.next.max(*low),
                facts,
                None,
                low.saturating_sub(offset.next),
            ),
            None if low == high => begin(*high),
            None => Verdict::Stop(format!(
                "kafka {name}: start_at = \"committed\", but the group has no offset for this partition (it expired, or the partition is new), and the ledger knows nothing of it. \
                 Set start_at to \"earliest\", \"latest\" or a time; it is used only where the ledger has no position"
            )),
        },
    }
}

fn forgotten(name: &str, facts: &Facts) -> String {
    let next = facts.committed.map_or(0, |committed| committed.next);
    format!(
        "kafka {name}: the group's offset {next} was told by a ledger, and this one has no position there: the database was restored to a time before its first, \
         or it is another one, or the source or its consumer has another name in the config. Nothing was handed out. \
         `semel rewind SOURCE --partition {name} --to OFFSET` says where to read from: {next} goes on there, what is known of earlier ones comes out as duplicates"
    )
}

fn start(offset: u64, facts: &Facts, tell: Option<Word>, removed: u64) -> Verdict {
    Verdict::Start {
        start: Start {
            offset,
            end: facts.high,
            tell,
        },
        removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(ledger: Option<u64>, committed: Option<u64>) -> Facts {
        Facts {
            committed: committed.map(|next| Offset {
                next,
                word: Word::Foreign,
            }),
            ledger: ledger.map(|next| (next, Mark::new())),
            kept: true,
            alarmed: false,
            low: 10,
            high: 100,
            before: Before::Same,
            at_time: None,
        }
    }

    fn told(next: u64, word: Word) -> Facts {
        Facts {
            committed: Some(Offset { next, word }),
            ..facts(None, None)
        }
    }

    fn started(facts: &Facts, start_at: StartAt) -> (u64, Option<Word>, u64) {
        match judge("t/0", facts, start_at) {
            Verdict::Start { start, removed } => (start.offset, start.tell, removed),
            Verdict::Stop(text) => panic!("{text}"),
        }
    }

    fn stopped(facts: &Facts, start_at: StartAt) -> String {
        match judge("t/0", facts, start_at) {
            Verdict::Start { start, .. } => panic!("started at {start:?}"),
            Verdict::Stop(text) => text,
        }
    }

    #[test]
    fn a_broker_behind_the_ledger_delivers_again() {
        for start_at in [
            StartAt::Earliest,
            StartAt::Latest,
            StartAt::Committed,
            StartAt::Timestamp(0),
        ] {
            assert_eq!(started(&facts(Some(50), Some(40)), start_at), (40, None, 0));
            assert_eq!(started(&facts(Some(50), Some(50)), start_at), (50, None, 0));
        }
    }

    #[test]
    fn t55_when_the_groups_offset_is_gone_the_ledgers_position_stands_in() {
        for start_at in [StartAt::Earliest, StartAt::Latest, StartAt::Committed] {
            assert_eq!(
                started(&facts(Some(50), None), start_at),
                (50, Some(Word::Reached), 0)
            );
        }
    }

    #[test]
    fn a_broker_ahead_of_the_ledger_stops_with_both_numbers() {
        let text = stopped(&facts(Some(50), Some(51)), StartAt::Earliest);
        for part in ["t/0", "50", "51", "semel doctor", "semel rewind"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn t57_a_topic_made_again_stops() {
        assert!(stopped(&facts(Some(101), Some(5)), StartAt::Earliest).contains("made again"));
        let other = Facts {
            before: Before::Other,
            ..facts(Some(50), Some(50))
        };
        assert!(stopped(&other, StartAt::Earliest).contains("offset 49"));
        let gone = Facts {
            before: Before::Gone,
            ..facts(Some(50), Some(50))
        };
        assert_eq!(
            started(&gone, StartAt::Earliest),
            (50, None, 0),
            "retention and compaction are no alarm"
        );
        assert_eq!(
            started(&facts(Some(100), Some(100)), StartAt::Earliest),
            (100, None, 0),
            "the end is not beyond it"
        );
    }

    #[test]
    fn what_retention_removed_unhandled_is_counted_and_told_to_nobody() {
        // Told to the broker, offset 10 would look like lost commits at the next start.
        assert_eq!(
            started(&facts(Some(5), Some(3)), StartAt::Earliest),
            (10, None, 5)
        );
        assert_eq!(
            started(&facts(Some(5), None), StartAt::Earliest),
            (10, None, 5)
        );
        assert_eq!(
            started(&facts(Some(50), Some(3)), StartAt::Earliest),
            (10, None, 0)
        );
    }

    #[test]
    fn a_first_start_is_decided_by_start_at_and_the_group_is_moved_there() {
        assert_eq!(
            started(&facts(None, Some(70)), StartAt::Earliest),
            (10, Some(Word::Start), 0)
        );
        assert_eq!(
            started(&facts(None, None), StartAt::Earliest),
            (10, Some(Word::Start), 0)
        );
        assert_eq!(
            started(&facts(None, Some(70)), StartAt::Latest),
            (100, Some(Word::Start), 0)
        );
        assert_eq!(
            started(&facts(None, Some(70)), StartAt::Committed),
            (70, None, 0)
        );
        let at = |at_time| Facts {
            at_time,
            ..facts(None, None)
        };
        assert_eq!(
            started(&at(Some(33)), StartAt::Timestamp(1)),
            (33, Some(Word::Start), 0)
        );
        assert_eq!(
            started(&at(None), StartAt::Timestamp(1)),
            (100, Some(Word::Start), 0)
        );
    }

    #[test]
    fn latest_does_not_skip_what_came_between_two_first_starts() {
        let again = told(70, Word::Start);
        assert_eq!(started(&again, StartAt::Latest), (70, None, 0));
    }

    #[test]
    fn an_offset_that_a_unit_told_and_this_ledger_does_not_know_is_not_gone_on_from() {
        let forgotten = told(70, Word::Reached);
        for start_at in [StartAt::Latest, StartAt::Committed, StartAt::Timestamp(0)] {
            let text = stopped(&forgotten, start_at);
            for part in ["t/0", "70", "no position", "--to OFFSET"] {
                assert!(text.contains(part), "{text}");
            }
        }
        // All of it is read again.
        assert_eq!(
            started(&forgotten, StartAt::Earliest),
            (10, Some(Word::Start), 0)
        );
        // An operator's own place.
        for start_at in [StartAt::Latest, StartAt::Committed, StartAt::Timestamp(0)] {
            assert_eq!(started(&told(40, Word::Start), start_at), (40, None, 0));
        }
        // Nothing can be lost that is not kept.
        let unkept = Facts {
            kept: false,
            ..forgotten
        };
        assert_eq!(started(&unkept, StartAt::Committed), (70, None, 0));
    }

    #[test]
    fn a_time_that_has_not_come_does_not_skip_what_came_between_two_first_starts() {
        let again = told(70, Word::Start);
        assert_eq!(started(&again, StartAt::Timestamp(0)), (70, None, 0));
        let of_that_time = Facts {
            at_time: Some(33),
            ..again
        };
        assert_eq!(
            started(&of_that_time, StartAt::Timestamp(0)),
            (33, Some(Word::Start), 0)
        );
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for word in [Word::Reached, Word::Start, Word::Alarm, Word::Foreign] {
            assert_eq!(Word::of(word.text()), word);
        }
        assert_eq!(Word::of("kept by another tool"), Word::Foreign);
    }

    #[test]
    fn committed_without_an_offset_is_an_error_and_not_a_guess() {
        assert!(stopped(&facts(None, None), StartAt::Committed).contains("start_at"));
        assert!(stopped(&facts(None, Some(101)), StartAt::Committed).contains("beyond"));
        let empty = Facts {
            low: 0,
            high: 0,
            ..facts(None, None)
        };
        assert_eq!(
            started(&empty, StartAt::Committed),
            (0, Some(Word::Start), 0)
        );
    }
}
