//! For operators: what the broker and the ledger say of each partition (`semel doctor`), and setting the
//! group back (`semel rewind`). Neither joins the group.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use semel_core::Fault;
use semel_core::source::Positions;

use crate::fault::classify;
use crate::options::{self, KafkaOptions};
use crate::probe::{Place, Probe};
use crate::quiet::Quiet;
use crate::shared::Shared;
use crate::verdict::{Before, Verdict, judge};
use crate::vetting::{Vetting, blocking};

/// One partition, as the broker and the ledger see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionReport {
    /// `topic/partition`.
    pub partition: String,
    /// The first offset the broker still has.
    pub low: u64,
    /// Behind the last record.
    pub high: u64,
    /// The group's committed offset.
    pub committed: Option<u64>,
    /// The ledger's position.
    pub ledger: Option<u64>,
    /// Offsets that retention removed before anything handled them.
    pub removed: u64,
    /// The topic is not the one that the ledger has read: it ends before the ledger's position, or another record is
    /// there.
    pub made_again: bool,
    /// The topic was made again under its reader, who left that word with the group's offset of some partition of it.
    pub alarmed: bool,
    /// A ledger told the group its offset, and this one has no position here: it was restored to a time before its first,
    /// or it is another one.
    pub forgotten: bool,
    /// Where a start would begin, or why it would stop.
    pub start: Result<u64, String>,
}

/// Compares every partition of the source's topics, as an assignment would.
///
/// # Errors
/// `Stop` when the options are wrong or a topic is unknown; `Down` when the broker or the ledger is away.
pub async fn inspect(
    options: &KafkaOptions,
    positions: Arc<dyn Positions>,
) -> Result<Vec<PartitionReport>, Fault> {
    let reader = options.reader()?;
    let timeout = Duration::from_millis(options.timeout_ms.into());
    let (asked, topics) = (reader.clone(), options.topics.clone());
    let places = blocking(move || {
        let probe = Probe::open(&asked, timeout)?;
        let mut places: Vec<Place> = Vec::new();
        for topic in topics {
            places.extend(
                probe
                    .partitions(&topic)?
                    .into_iter()
                    .map(|number| (topic.clone(), number)),
            );
        }
        Ok(places)
    })
    .await?;
    let start_at = options.start_at;
    let vetting = Vetting {
        shared: Arc::new(Shared::new()),
        positions,
        reader,
        timeout,
        start_at,
    };
    let named = |place: &Place| -> Arc<str> { format!("{}/{}", place.0, place.1).into() };
    let facts = vetting
        .gather(
            places
                .iter()
                .map(|place| (place.clone(), named(place)))
                .collect(),
        )
        .await?;
    let mut reports: Vec<_> = places
        .iter()
        .filter_map(|place| {
            let facts = facts.get(place)?;
            let name = named(place);
            let (removed, start) = match judge(&name, facts, start_at) {
                Verdict::Start { start, removed } => (removed, Ok(start.offset)),
                Verdict::Stop(text) => (0, Err(text)),
            };
            Some(PartitionReport {
                partition: name.to_string(),
                low: facts.low,
                high: facts.high,
                committed: facts.committed.map(|offset| offset.next),
                ledger: facts.ledger.as_ref().map(|(next, _)| *next),
                removed,
                made_again: facts
                    .ledger
                    .as_ref()
                    .is_some_and(|(next, _)| *next > facts.high || facts.before == Before::Other),
                alarmed: facts.alarmed,
                forgotten: facts.is_forgotten(),
                start,
            })
        })
        .collect();
    reports.sort_by(|a, b| a.partition.cmp(&b.partition));
    Ok(reports)
}

/// Asks the broker again and again whether it is there, on a connection of its own: the group's client may wait for
/// minutes until it takes a silent broker for lost. For readiness.
pub struct Pulse {
    probe: Arc<Probe>,
    topic: String,
}

impl std::fmt::Debug for Pulse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pulse")
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

impl Pulse {
    /// Of the brokers of these options. An answer may take `patience`. Connects to nothing yet.
    ///
    /// # Errors
    /// `Stop` when the options are wrong.
    pub fn open(options: &KafkaOptions, patience: Duration) -> Result<Self, Fault> {
        let probe = Arc::new(Probe::open(&options.reader()?, patience)?);
        let topic = options.topics.first().cloned().unwrap_or_default();
        Ok(Self { probe, topic })
    }

    /// Is it there?
    ///
    /// # Errors
    /// `Down` when no broker answers in time; `Stop` when the topic is gone or may not be read.
    pub async fn beat(&self) -> Result<(), Fault> {
        let (probe, topic) = (self.probe.clone(), self.topic.clone());
        blocking(move || probe.partitions(&topic).map(drop)).await
    }
}

/// Sets the group's offsets to `to` (partitions by their names, `topic/partition`): what is there and behind
/// comes again. Stop every instance of the consumer first.
///
/// # Errors
/// `Stop` when the group has running members or a name is none of this source's; `Down` when the broker is
/// away.
pub async fn rewind(options: &KafkaOptions, to: &[(String, u64)]) -> Result<(), Fault> {
    let reader = options.reader()?;
    let timeout = Duration::from_millis(options.timeout_ms.into());
    let mut places = Vec::with_capacity(to.len());
    for (name, next) in to {
        let place = name
            .rsplit_once('/')
            .and_then(|(topic, number)| Some((topic.to_owned(), number.parse().ok()?)));
        let place: Place = place
            .filter(|(topic, _)| options.topics.contains(topic))
            .ok_or_else(|| {
                Fault::stop(format!(
                    "kafka: `{name}` is no partition of this source; write it as `topic/0`"
                ))
            })?;
        places.push((place, *next));
    }
    blocking(move || Probe::open(&reader, timeout)?.move_group(&places)).await
}

/// How long each topic keeps its records, ms; `None` for ever. For `semel doctor`, which compares it with
/// the ledger's horizon.
///
/// # Errors
/// `Down` when the broker is away or does not say.
pub async fn retention_ms(options: &KafkaOptions) -> Result<HashMap<String, Option<u64>>, Fault> {
    let reader = options.reader()?;
    let client: AdminClient<Quiet> = options::create(reader.create_with_context(Quiet::default()))?;
    let resources: Vec<_> = options
        .topics
        .iter()
        .map(|topic| ResourceSpecifier::Topic(topic))
        .collect();
    let asked =
        AdminOptions::new().request_timeout(Some(Duration::from_millis(options.timeout_ms.into())));
    let answered = client
        .describe_configs(&resources, &asked)
        .await
        .map_err(|error| classify("the topics' settings", &error))?;
    let mut found = HashMap::new();
    for (topic, config) in options.topics.iter().zip(answered) {
        let config = config.map_err(|code| {
            Fault::down(format!("kafka: the settings of topic `{topic}`: {code}"))
        })?;
        let value = |name: &str| {
            config
                .entry_map()
                .get(name)
                .and_then(|entry| entry.value.clone())
        };
        let deletes = value("cleanup.policy").is_none_or(|policy| policy.contains("delete"));
        let kept = value("retention.ms").and_then(|ms| ms.parse::<u64>().ok());
        found.insert(topic.clone(), kept.filter(|_| deletes));
    }
    Ok(found)
}
