//! What a run tells while it goes: outcome lines, a progress bar, and once a minute that it waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use semel::{Cause, Ended, Observer, State, UnitDone};
use semel_core::source::{BoxFuture, Limit, Received, Settled, Settlements, Source};
use semel_core::{Code, Fault, Outcome};

use super::outcomes::Orderly;
use crate::http::{Board, Meters, Part};
use crate::out;

/// The progress of a run, over all its consumers. Without a terminal it shows nothing.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
    dead: Arc<AtomicU64>,
}

impl Progress {
    /// A bar over this many bytes of files, or a counter where the end is not known.
    pub(crate) fn new(bytes: Option<u64>) -> Self {
        let (bar, style) = match bytes {
            Some(bytes) => (
                ProgressBar::new(bytes),
                "{bar:30} {bytes}/{total_bytes}, {eta} left, {msg}",
            ),
            None => (
                ProgressBar::new_spinner(),
                "{spinner} {bytes}, {elapsed}, {msg}",
            ),
        };
        // Both templates are constants that a test draws.
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Self {
            bar,
            dead: Arc::default(),
        }
    }

    fn read(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Bytes that an earlier run read: the bar begins behind them, and its estimate does not count them.
    pub(crate) fn skip(&self, bytes: u64) {
        self.bar.inc(bytes);
        self.bar.reset_eta();
    }

    fn dead(&self, count: u64) {
        let dead = self.dead.fetch_add(count, Ordering::Relaxed) + count;
        if count > 0 {
            self.bar.set_message(format!("{dead} dead"));
        }
    }

    /// Takes the bar away: what follows are words and data.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&self, words: &str) {
        self.bar.suspend(|| out::say(words));
    }
}

/// A source whose bytes the progress counts.
pub(crate) struct Metered {
    source: Arc<dyn Source>,
    progress: Progress,
}

impl Metered {
    pub(crate) fn new(source: Arc<dyn Source>, progress: Progress) -> Self {
        Self { source, progress }
    }
}

impl Source for Metered {
    fn receive(&self, limit: Limit) -> BoxFuture<'_, Result<Received, Fault>> {
        Box::pin(async move {
            let received = self.source.receive(limit).await?;
            if let Received::Batch(deliveries) = &received {
                // A line end belongs to each.
                let bytes = |d: &semel_core::Delivery| {
                    d.message
                        .cut
                        .map_or(d.message.bytes().len() as u64, |cut| cut.size)
                        + 1
                };
                self.progress.read(deliveries.iter().map(bytes).sum());
            }
            Ok(received)
        })
    }

    fn settle(&self, settlements: Settlements) -> BoxFuture<'_, Result<Settled, Fault>> {
        self.source.settle(settlements)
    }
}

/// Listens to one consumer.
pub(crate) struct Watch {
    consumer: String,
    outcomes: Option<Orderly>,
    progress: Progress,
    paused: Mutex<Paused>,
    told: Option<Told>,
}

/// Where the port for health checks and metrics looks.
pub(crate) struct Told {
    pub(crate) meters: Meters,
    pub(crate) board: Arc<Board>,
}

#[derive(Default)]
struct Paused {
    now: bool,
    told: Option<Instant>,
}

/// A pause is told at most this often: an outage of an hour is 60 lines.
const TELL_EVERY: Duration = Duration::from_secs(60);

impl Watch {
    pub(crate) fn new(
        consumer: &str,
        outcomes: Option<Orderly>,
        progress: Progress,
        told: Option<Told>,
    ) -> Self {
        Self {
            told,
            consumer: consumer.to_owned(),
            outcomes,
            progress,
            paused: Mutex::default(),
        }
    }
}

impl Observer for Watch {
    fn ended(&self, ended: Vec<Ended>) {
        let dead = ended
            .iter()
            .filter(|one| one.ending.outcome == Outcome::Dead)
            .count();
        self.progress.dead(dead as u64);
        if let Some(told) = &self.told {
            told.meters.ended(&ended);
        }
        if let Some(outcomes) = &self.outcomes {
            outcomes.ended(&ended);
        }
    }

    fn passed(&self, source: usize, partition: &Arc<str>, sequence: u64) {
        if let Some(outcomes) = &self.outcomes {
            outcomes.passed(source, partition, sequence);
        }
    }

    fn released(&self, outcome: Outcome, _code: Option<&Code>) {
        self.progress.dead(u64::from(outcome == Outcome::Dead));
        if let Some(told) = &self.told {
            told.meters.released(outcome);
        }
    }

    fn unit(&self, done: &UnitDone) {
        let Some(told) = &self.told else { return };
        told.meters.unit(done);
        // A unit got through, so none waits for the store any more.
        told.board.looked(&Part::Units(self.consumer.clone()), None);
    }

    fn lost_acks(&self, source: usize, count: u64) {
        if let Some(told) = &self.told {
            told.meters.lost_acks(source, count);
        }
    }

    fn state(&self, state: &State) {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(told), State::Paused { by, why }) = (&self.told, state)
            && *by == Cause::Store
        {
            let part = Part::Units(self.consumer.clone());
            told.board.looked(&part, Some(why.clone()));
        }
        if let (Some(told), State::Running) = (&self.told, state) {
            told.board.looked(&Part::Units(self.consumer.clone()), None);
        }
        match state {
            State::Paused { why, .. } => {
                paused.now = true;
                if paused.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                    paused.told = Some(Instant::now());
                    self.progress.say(&format!(
                        "{} waits, its messages stay unsettled: {why}",
                        self.consumer
                    ));
                }
            }
            State::Running if paused.now => {
                *paused = Paused::default();
                self.progress.say(&format!("{} goes on", self.consumer));
            }
            State::Running => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_of_a_resumed_file_begins_at_its_position() {
        let progress = Progress::new(Some(100));
        progress.skip(60);
        progress.read(10);
        assert_eq!(progress.bar.position(), 70);
    }
}
