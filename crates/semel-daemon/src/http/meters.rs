//! The numbers that `/metrics` tells, by names that `docs/reference/metrics.md` fixes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use semel::{Ended, UnitDone};
use semel_core::Outcome;

use super::board::Report;
use super::pulse::{Backlog, Lag};

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A metric: its name, what it is, its labels, and what it says.
struct Metric(&'static str, Kind, &'static str, &'static str);

const MESSAGES: Metric = Metric(
    "semel_messages_total",
    Kind::Counter,
    "consumer, outcome",
    "Deliveries that ended, told after their commit. `duplicate` is an outcome.",
);
const RELEASED: Metric = Metric(
    "semel_released_total",
    Kind::Counter,
    "consumer, outcome",
    "Parked messages that ended.",
);
const REDELIVERIES: Metric = Metric(
    "semel_redeliveries_total",
    Kind::Counter,
    "consumer, source",
    "Deliveries that ended and had been delivered before: by the broker's own word, or because they lie below the \
     ledger's position at the start.",
);
const LOST_ACKS: Metric = Metric(
    "semel_lost_acks_total",
    Kind::Counter,
    "consumer, source",
    "Acks that may not have reached the broker. It delivers again, and the copies are duplicates.",
);
const CLASHES: Metric = Metric(
    "semel_clashes_total",
    Kind::Counter,
    "consumer",
    "Deliveries with a known key and other content. Each is an incident at a sender.",
);
const NEW_LETTERS: Metric = Metric(
    "semel_new_dead_letters_total",
    Kind::Counter,
    "consumer",
    "Dead letters that were not there before.",
);
const UNIT: Metric = Metric(
    "semel_unit_seconds",
    Kind::Histogram,
    "consumer",
    "Time of a unit of work that ended at least one message, from its begin until its commit was known.",
);
const LAG: Metric = Metric(
    "semel_lag_messages",
    Kind::Gauge,
    "consumer, source, partition",
    "Messages between what is done and the end: Kafka (0 while another instance has the partition), RabbitMQ and the \
     queue (ready and unsettled ones; of a queue at most 100 000 are counted).",
);
const LAG_BYTES: Metric = Metric(
    "semel_lag_bytes",
    Kind::Gauge,
    "consumer, source, partition",
    "Bytes of a file behind what is done.",
);
const STORE_UP: Metric = Metric(
    "semel_store_up",
    Kind::Gauge,
    "",
    "1 while the ledger's database answers.",
);
const SOURCE_UP: Metric = Metric(
    "semel_source_up",
    Kind::Gauge,
    "consumer, source",
    "1 while the source's broker answers, or its file can be read.",
);
const PAUSED: Metric = Metric(
    "semel_paused",
    Kind::Gauge,
    "consumer, reason",
    "1 while the consumer waits for this reason, with its messages unsettled: `store` (the database is away, or lets no \
     unit through), `source` (one of its sources is away). `/readyz` has the words.",
);
const PARKED: Metric = Metric(
    "semel_parked",
    Kind::Gauge,
    "consumer",
    "Parked messages in the ledger, by a count every five seconds.",
);
const LETTERS: Metric = Metric(
    "semel_dead_letters",
    Kind::Gauge,
    "consumer",
    "Dead letters in the ledger, by a count every five seconds.",
);

/// All of them, in the order of the page.
const ALL: [&Metric; 14] = [
    &MESSAGES,
    &RELEASED,
    &REDELIVERIES,
    &LOST_ACKS,
    &CLASHES,
    &NEW_LETTERS,
    &UNIT,
    &LAG,
    &LAG_BYTES,
    &STORE_UP,
    &SOURCE_UP,
    &PAUSED,
    &PARKED,
    &LETTERS,
];

/// From a lone duplicate on SQLite to a unit that meets its deadline, seconds.
const BUCKETS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 90.0,
];

/// Samples of histograms are gathered this often, so that they need no memory when nobody asks for them.
const UPKEEP: Duration = Duration::from_secs(5);

static METADATA: Metadata<'static> = Metadata::new("semel", Level::INFO, None);

/// Partitions by consumer and source.
type Partitions = BTreeMap<(String, String), BTreeSet<String>>;

/// All metrics of the process.
#[derive(Clone)]
pub(crate) struct Gauges {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    /// Partitions whose lag was told, so that those that have gone are not told for ever.
    partitions: Arc<Mutex<Partitions>>,
}

impl Gauges {
    pub(super) fn new() -> Self {
        // Fails for an empty list only.
        let builder = PrometheusBuilder::new()
            .set_buckets(&BUCKETS)
            .unwrap_or_default();
        let recorder = builder.build_recorder();
        for Metric(name, kind, _, help) in ALL {
            let (name, help) = ((*name).into(), (*help).into());
            match kind {
                Kind::Counter => recorder.describe_counter(name, None, help),
                Kind::Gauge => recorder.describe_gauge(name, None, help),
                Kind::Histogram => recorder.describe_histogram(name, None, help),
            }
        }
        Self {
            handle: recorder.handle(),
            recorder: Arc::new(recorder),
            partitions: Arc::default(),
        }
    }

    pub(super) async fn upkeep(self) {
        loop {
            tokio::time::sleep(UPKEEP).await;
            self.handle.run_upkeep();
        }
    }

    pub(super) fn render(&self, report: &Report) -> String {
        let truth = |truth: bool| if truth { 1.0 } else { 0.0 };
        self.set(&STORE_UP, &[], truth(report.store.up));
        for consumer in &report.consumers {
            let name = ("consumer", consumer.name.as_str());
            for source in &consumer.sources {
                let labels = [name, ("source", source.name.as_str())];
                self.set(&SOURCE_UP, &labels, truth(source.health.up));
            }
            let store = !report.store.up || consumer.waits.is_some();
            let source = consumer.sources.iter().any(|source| !source.health.up);
            self.set(&PAUSED, &[name, ("reason", "store")], truth(store));
            self.set(&PAUSED, &[name, ("reason", "source")], truth(source));
        }
        self.handle.render()
    }

    pub(super) fn lag(&self, consumer: &str, source: &str, lags: &[Lag]) {
        let of = (consumer.to_owned(), source.to_owned());
        let mut partitions = self
            .partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut gone = partitions.remove(&of).unwrap_or_default();
        let mut told = gone.clone();
        let labels = |partition| {
            [
                ("consumer", consumer),
                ("source", source),
                ("partition", partition),
            ]
        };
        for lag in lags {
            match lag {
                Lag::Messages(partition, count) => {
                    gone.remove(partition);
                    told.insert(partition.clone());
                    self.set(&LAG, &labels(partition), float(*count));
                }
                Lag::Bytes(partition, bytes) => {
                    self.set(&LAG_BYTES, &labels(partition), float(*bytes));
                }
            }
        }
        gone.iter()
            .for_each(|partition| self.set(&LAG, &labels(partition), 0.0));
        partitions.insert(of, told);
    }

    pub(super) fn backlog(&self, backlog: &[Backlog]) {
        for of in backlog {
            let name = [("consumer", of.consumer.as_str())];
            self.set(&PARKED, &name, float(of.parked));
            self.set(&LETTERS, &name, float(of.letters));
        }
    }

    fn set(&self, metric: &Metric, labels: &[(&str, &str)], value: f64) {
        self.recorder
            .register_gauge(&key(metric, labels), &METADATA)
            .set(value);
    }

    fn counter(&self, metric: &Metric, labels: &[(&str, &str)]) -> Counter {
        let counter = self
            .recorder
            .register_counter(&key(metric, labels), &METADATA);
        // It is there from the start, so that the first one is a step and not a beginning.
        counter.increment(0);
        counter
    }

    /// The numbers of one consumer.
    pub(super) fn meters(&self, consumer: &str, sources: &[String]) -> Meters {
        let name = ("consumer", consumer);
        let outcomes = |metric| {
            let counter =
                |outcome: Outcome| self.counter(metric, &[name, ("outcome", outcome.as_str())]);
            Outcome::ALL
                .iter()
                .map(|outcome| (*outcome, counter(*outcome)))
                .collect()
        };
        let of_sources = |metric| {
            let counter = |source: &String| self.counter(metric, &[name, ("source", source)]);
            sources.iter().map(counter).collect()
        };
        Meters {
            messages: outcomes(&MESSAGES),
            released: outcomes(&RELEASED),
            redeliveries: of_sources(&REDELIVERIES),
            lost_acks: of_sources(&LOST_ACKS),
            clashes: self.counter(&CLASHES, &[name]),
            new_letters: self.counter(&NEW_LETTERS, &[name]),
            unit: self
                .recorder
                .register_histogram(&key(&UNIT, &[name]), &METADATA),
        }
    }
}

fn key(metric: &Metric, labels: &[(&str, &str)]) -> Key {
    debug_assert!(
        labels
            .iter()
            .map(|(name, _)| *name)
            .eq(metric.2.split(", ").filter(|name| !name.is_empty())),
        "{}",
        metric.0
    );
    let labels = labels
        .iter()
        .map(|(name, value)| Label::new((*name).to_owned(), (*value).to_owned()));
    Key::from_parts(metric.0, labels.collect::<Vec<_>>())
}

/// A count as Prometheus has it: exact to 2^53.
fn float(count: u64) -> f64 {
    let (high, low) = (count >> 32, count & u64::from(u32::MAX));
    let part = |part| f64::from(u32::try_from(part).unwrap_or(u32::MAX));
    part(high).mul_add(4_294_967_296.0, part(low))
}

/// The numbers of one consumer, written as it works.
pub(crate) struct Meters {
    messages: BTreeMap<Outcome, Counter>,
    released: BTreeMap<Outcome, Counter>,
    redeliveries: Vec<Counter>,
    lost_acks: Vec<Counter>,
    clashes: Counter,
    new_letters: Counter,
    unit: Histogram,
}

impl Meters {
    pub(crate) fn ended(&self, ended: &[Ended]) {
        for one in ended {
            if let Some(counter) = self.messages.get(&one.ending.outcome) {
                counter.increment(1);
            }
            if one.redelivered
                && let Some(counter) = self.redeliveries.get(one.source)
            {
                counter.increment(1);
            }
        }
    }

    pub(crate) fn released(&self, outcome: Outcome) {
        if let Some(counter) = self.released.get(&outcome) {
            counter.increment(1);
        }
    }

    pub(crate) fn unit(&self, done: &UnitDone) {
        if done.messages > 0 {
            self.unit.record(done.elapsed.as_secs_f64());
        }
        self.clashes.increment(done.clashes);
        self.new_letters.increment(done.new_letters);
    }

    pub(crate) fn lost_acks(&self, source: usize, count: u64) {
        if let Some(counter) = self.lost_acks.get(source) {
            counter.increment(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_docs_lists_every_metric_with_its_labels_and_meaning() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/metrics.md"
        );
        let page = std::fs::read_to_string(path).unwrap_or_default();
        let listed: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("| `semel_"))
            .collect();
        let rows = ALL.map(|Metric(name, kind, labels, help)| {
            format!(
                "| `{name}` | {} | {labels} | {help} |",
                format!("{kind:?}").to_lowercase()
            )
        });
        assert_eq!(listed, rows, "docs/reference/metrics.md");
    }

    #[test]
    fn a_count_keeps_its_value() {
        for count in [0, 1, 4_294_967_295, 4_294_967_296, (1 << 53) - 1] {
            assert_eq!(format!("{}", float(count)), count.to_string());
        }
    }

    #[test]
    fn a_partition_that_another_instance_has_is_no_lag_of_this_one() {
        let gauges = Gauges::new();
        gauges.lag("wallet", "ops", &[Lag::Messages("t/0".to_owned(), 5)]);
        gauges.lag("wallet", "ops", &[Lag::Messages("t/1".to_owned(), 7)]);
        let text = gauges.handle.render();
        assert!(text.contains("partition=\"t/0\"} 0\n"), "{text}");
        assert!(text.contains("partition=\"t/1\"} 7\n"), "{text}");
    }
}
