//! What a run prints at its end.

use std::collections::BTreeMap;
use std::time::Duration;

use semel::Summary;
use semel_core::Outcome;
use serde::Serialize;

use crate::cli::FailOn;
use crate::out::{self, Style};

/// The object of `run --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    consumers: Vec<Consumer>,
}

#[derive(Debug, Serialize)]
struct Consumer {
    name: String,
    messages: u64,
    outcomes: Outcomes,
    codes: BTreeMap<String, u64>,
    released: Released,
    elapsed_ms: u64,
    #[serde(skip)]
    clashes: u64,
}

#[derive(Debug, Serialize)]
struct Outcomes {
    applied: u64,
    ignored: u64,
    refused: u64,
    duplicate: u64,
    parked: u64,
    dead: u64,
}

#[derive(Debug, Serialize)]
struct Released {
    applied: u64,
    ignored: u64,
    refused: u64,
    dead: u64,
}

/// The counts that are not zero, in words.
fn listed(named: &[(&str, u64)]) -> Option<String> {
    let counts = named.iter().filter(|(_, count)| *count > 0);
    let words: Vec<String> = counts
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn millis(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

impl Consumer {
    fn new(name: String, summary: &Summary) -> Self {
        let outcome = |outcome| summary.outcomes.get(&outcome).copied().unwrap_or_default();
        let released = |outcome| summary.released.get(&outcome).copied().unwrap_or_default();
        Self {
            name,
            messages: summary.messages,
            outcomes: Outcomes {
                applied: outcome(Outcome::Applied),
                ignored: outcome(Outcome::Ignored),
                refused: outcome(Outcome::Refused),
                duplicate: outcome(Outcome::Duplicate),
                parked: outcome(Outcome::Parked),
                dead: outcome(Outcome::Dead),
            },
            codes: summary
                .codes
                .iter()
                .map(|(code, count)| (code.as_str().to_owned(), *count))
                .collect(),
            released: Released {
                applied: released(Outcome::Applied),
                ignored: released(Outcome::Ignored),
                refused: released(Outcome::Refused),
                dead: released(Outcome::Dead),
            },
            elapsed_ms: millis(summary.elapsed),
            clashes: summary.clashes,
        }
    }

    fn words(&self) -> String {
        let counts = &self.outcomes;
        let named = [
            ("applied", counts.applied),
            ("ignored", counts.ignored),
            ("refused", counts.refused),
            ("duplicate", counts.duplicate),
            ("parked", counts.parked),
            ("dead", counts.dead),
        ];
        let counts = listed(&named).unwrap_or_else(|| "none".to_owned());
        let mut words = format!(
            "{}: {} messages in {} ms: {counts}",
            self.name, self.messages, self.elapsed_ms
        );
        if !self.codes.is_empty() {
            let codes: Vec<String> = self
                .codes
                .iter()
                .map(|(code, count)| format!("{count} {code}"))
                .collect();
            words.push_str(&format!("\n  codes: {}", codes.join(", ")));
        }
        let released = &self.released;
        let named = [
            ("applied", released.applied),
            ("ignored", released.ignored),
            ("refused", released.refused),
            ("dead", released.dead),
        ];
        if let Some(ended) = listed(&named) {
            words.push_str(&format!(
                "\n  messages that were parked, in this run or before, and ended: {ended}"
            ));
        }
        words
    }
}

impl Report {
    pub(crate) fn new(summaries: impl IntoIterator<Item = (String, Summary)>) -> Self {
        let consumers = summaries
            .into_iter()
            .map(|(name, summary)| Consumer::new(name, &summary));
        Self {
            consumers: consumers.collect(),
        }
    }

    /// Did a message end as `--fail-on` says it must not?
    pub(crate) fn fails(&self, on: &[FailOn]) -> bool {
        let fails = |consumer: &Consumer, on: FailOn| match on {
            FailOn::Dead => consumer.outcomes.dead + consumer.released.dead > 0,
            FailOn::Clash => consumer.clashes > 0,
            FailOn::Refused => consumer.outcomes.refused + consumer.released.refused > 0,
        };
        self.consumers
            .iter()
            .any(|consumer| on.iter().any(|&on| fails(consumer, on)))
    }

    pub(crate) fn print(&self, style: Style) -> std::io::Result<()> {
        match style {
            Style::Json => out::json(self),
            Style::Words => self
                .consumers
                .iter()
                .try_for_each(|consumer| out::line(&consumer.words())),
        }
    }
}

#[cfg(test)]
mod tests {
    use semel_core::Code;

    use super::*;

    fn summary() -> Summary {
        Summary {
            messages: 9,
            outcomes: [
                (Outcome::Applied, 5),
                (Outcome::Refused, 1),
                (Outcome::Duplicate, 2),
                (Outcome::Dead, 1),
            ]
            .into(),
            codes: [
                (Code::new("insufficient_funds"), 1),
                (Code::new("malformed"), 1),
            ]
            .into(),
            elapsed: Duration::from_millis(12),
            ..Summary::default()
        }
    }

    #[test]
    fn the_object_is_the_contracts() {
        let report = Report::new([("wallet".to_owned(), summary())]);
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            r#"{"consumers":[{"name":"wallet","messages":9,"outcomes":{"applied":5,"ignored":0,"refused":1,"duplicate":2,"parked":0,"dead":1},"codes":{"insufficient_funds":1,"malformed":1},"released":{"applied":0,"ignored":0,"refused":0,"dead":0},"elapsed_ms":12}]}"#
        );
    }

    #[test]
    fn messages_that_waited_are_told_apart_from_those_that_were_parked_now() {
        let words = |released| {
            let summary = Summary {
                messages: 2,
                outcomes: [(Outcome::Parked, 2)].into(),
                released,
                ..Summary::default()
            };
            Consumer::new("w".to_owned(), &summary).words()
        };
        assert_eq!(words([].into()), "w: 2 messages in 0 ms: 2 parked");
        assert_eq!(
            words([(Outcome::Applied, 1), (Outcome::Dead, 2)].into()),
            "w: 2 messages in 0 ms: 2 parked\n  messages that were parked, in this run or before, and ended: 1 applied, 2 dead"
        );
    }

    #[test]
    fn a_run_fails_on_what_it_was_told_to_and_on_nothing_else() {
        let report = Report::new([("wallet".to_owned(), summary())]);
        assert!(report.fails(&[FailOn::Dead]));
        assert!(
            !report.fails(&[FailOn::Clash]),
            "a malformed message is dead and no clash"
        );
        assert!(!report.fails(&[]));
    }
}
