//! Looks at the broker without joining the group: offsets, ends, single records. Blocks; never called on
//! the async runtime's own threads.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use semel_core::Fault;
use semel_core::ledger::Mark;

use crate::fault::classify;
use crate::orphans::{self, Owners};
use crate::quiet::Quiet;
use crate::verdict::{self, Word};
use crate::{mark, options};

/// A client that is silent for so long has said what there was: shorter than it waits between two connections.
const COMPLAINING: Duration = Duration::from_millis(50);

/// More than this it does not say in ten seconds.
const COMPLAINTS_MAX: usize = 1_000;

/// A topic and a partition's number.
pub(crate) type Place = (String, i32);

/// A client that looks. The library takes a tenth of a second to end it, so it is dropped where blocking is allowed (TRAPS T52).
pub(crate) struct Probe {
    client: BaseConsumer<Quiet>,
    timeout: Duration,
}

impl Probe {
    /// `config` is a reader's.
    pub(crate) fn open(config: &ClientConfig, timeout: Duration) -> Result<Self, Fault> {
        let mut config = config.clone();
        // That the other side hung up is told at this level.
        config.set_log_level(RDKafkaLogLevel::Info);
        let client = options::create(config.create_with_context(Quiet::default()))?;
        Ok(Self { client, timeout })
    }

    /// The numbers of a topic's partitions.
    ///
    /// # Errors
    /// `Stop` when there is no such topic, or the broker lets us not in or not read it; `Down` when none answers.
    pub(crate) fn partitions(&self, topic: &str) -> Result<Vec<i32>, Fault> {
        let metadata = self
            .client
            .fetch_metadata(Some(topic), self.timeout)
            .map_err(|error| self.unreachable(&error))?;
        self.client.context().complaints.forget();
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        let Some(found) = found else {
            return Err(unknown_topic(topic));
        };
        match found.error().map(RDKafkaErrorCode::from) {
            None => Ok(found
                .partitions()
                .iter()
                .map(|partition| partition.id())
                .collect()),
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                Err(unknown_topic(topic))
            }
            Some(RDKafkaErrorCode::TopicAuthorizationFailed) => Err(Fault::refused(format!(
                "kafka: the broker does not let us read topic `{topic}`; grant Describe and Read on it"
            ))),
            Some(code) => Err(Fault::down(format!("kafka: topic `{topic}`: {code}"))),
        }
    }

    /// Whether members of the group own all partitions of these topics.
    pub(crate) fn owners(&self, group: &str, topics: &[String]) -> Result<Owners, Fault> {
        let groups = self
            .client
            .fetch_group_list(Some(group), self.timeout)
            .map_err(|error| classify("the group's members", &error))?;
        let found = groups.groups().iter().find(|found| found.name() == group);
        let Some(found) = found.filter(|found| found.state() == "Stable") else {
            return Ok(Owners::Unknown);
        };
        let mut owned = HashSet::new();
        for member in found.members() {
            owned.extend(
                orphans::owned(member.assignment().unwrap_or_default()).unwrap_or_default(),
            );
        }
        for topic in topics {
            for number in self.partitions(topic)? {
                let place = (topic.clone(), number);
                if !owned.contains(&place) {
                    return Ok(Owners::NotOf(place));
                }
            }
        }
        Ok(Owners::All)
    }

    fn unreachable(&self, error: &KafkaError) -> Fault {
        // What the client has to say, it says to who polls.
        for _ in 0..COMPLAINTS_MAX {
            if self.client.poll(COMPLAINING).is_none() {
                break;
            }
        }
        self.client.context().complaints.unreachable(error)
    }

    /// The group's committed offsets.
    pub(crate) fn committed(
        &self,
        places: &[Place],
    ) -> Result<HashMap<Place, verdict::Offset>, Fault> {
        let answered = self
            .client
            .committed_offsets(
                list(places.iter().map(|place| (place, Offset::Invalid)))?,
                self.timeout,
            )
            .map_err(|error| classify("the group's offsets", &error))?;
        let mut found = HashMap::new();
        for element in answered.elements() {
            element
                .error()
                .map_err(|error| classify("the group's offsets", &error))?;
            if let Offset::Offset(offset) = element.offset()
                && let Ok(next) = u64::try_from(offset)
            {
                found.insert(
                    place(element.topic(), element.partition()),
                    verdict::Offset {
                        next,
                        word: Word::of(element.metadata()),
                    },
                );
            }
        }
        Ok(found)
    }

    /// The first offset and the end.
    pub(crate) fn ends(&self, (topic, number): &Place) -> Result<(u64, u64), Fault> {
        let (low, high) = self
            .client
            .fetch_watermarks(topic, *number, self.timeout)
            .map_err(|error| classify(&format!("the ends of {topic}/{number}"), &error))?;
        Ok((unsigned(low), unsigned(high)))
    }

    /// The first offsets of this broker time or later; absent where there is none.
    pub(crate) fn at_time(
        &self,
        places: &[Place],
        at_ms: i64,
    ) -> Result<HashMap<Place, u64>, Fault> {
        if places.is_empty() {
            return Ok(HashMap::new());
        }
        let asked = list(places.iter().map(|place| (place, Offset::Offset(at_ms))))?;
        let answered = self
            .client
            .offsets_for_times(asked, self.timeout)
            .map_err(|error| classify("offsets of a time", &error))?;
        let offset = |offset| match offset {
            Offset::Offset(offset) => u64::try_from(offset).ok(),
            _ => None,
        };
        Ok(answered
            .elements()
            .iter()
            .filter_map(|e| Some((place(e.topic(), e.partition()), offset(e.offset())?)))
            .collect())
    }

    /// The first record at or behind each place: its offset and mark; absent where there is none.
    pub(crate) fn first_records(
        &self,
        places: &[(Place, u64)],
    ) -> Result<HashMap<Place, (u64, Mark)>, Fault> {
        let mut found = HashMap::new();
        let mut topics: Vec<&str> = places
            .iter()
            .map(|((topic, _), _)| topic.as_str())
            .collect();
        topics.sort_unstable();
        topics.dedup();
        // One topic at a time: the library's word that an end was reached names the number alone.
        for topic in topics {
            let mut asked: HashMap<i32, u64> = places
                .iter()
                .filter(|((t, _), _)| t == topic)
                .map(|((_, number), at)| (*number, *at))
                .collect();
            self.read(topic, &mut asked, &mut found)?;
        }
        Ok(found)
    }

    fn read(
        &self,
        topic: &str,
        asked: &mut HashMap<i32, u64>,
        found: &mut HashMap<Place, (u64, Mark)>,
    ) -> Result<(), Fault> {
        let what = format!("reading {topic}");
        let places: Vec<_> = asked
            .iter()
            .map(|(number, at)| (place(topic, *number), Offset::Offset(signed(*at))))
            .collect();
        let list = list(places.iter().map(|(place, at)| (place, *at)))?;
        self.client
            .assign(&list)
            .map_err(|error| classify(&what, &error))?;
        let deadline = Instant::now() + self.timeout;
        while !asked.is_empty() {
            if Instant::now() >= deadline {
                return Err(Fault::down(format!(
                    "kafka: {what}: the broker did not answer in time"
                )));
            }
            match self.client.poll(Duration::from_millis(100)) {
                // Only the first one of each is asked for; the client has fetched more.
                Some(Ok(record)) if asked.remove(&record.partition()).is_some() => {
                    let mark = mark::of(record.timestamp().to_millis(), record.key());
                    let mark = Mark::copy_from_slice(&mark);
                    found.insert(
                        place(topic, record.partition()),
                        (unsigned(record.offset()), mark),
                    );
                }
                Some(Ok(_)) => {}
                Some(Err(KafkaError::PartitionEOF(number))) => drop(asked.remove(&number)),
                // Retention overtook us; the caller asks for the ends anew.
                Some(Err(error))
                    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AutoOffsetReset) =>
                {
                    break;
                }
                Some(Err(error)) => tracing::debug!(%error, "while reading single records"),
                None => {}
            }
        }
        self.client
            .unassign()
            .map_err(|error| classify(&what, &error))
    }

    /// Moves the group's offsets, to start there. The broker refuses while the group has members.
    pub(crate) fn move_group(&self, to: &[(Place, u64)]) -> Result<(), Fault> {
        let list = list(
            to.iter()
                .map(|(place, next)| (place, Offset::Offset(signed(*next)))),
        )?;
        for (place, _) in to {
            if let Some(mut element) = list.find_partition(&place.0, place.1) {
                element.set_metadata(Word::Start.text());
            }
        }
        self.client.commit(&list, CommitMode::Sync).map_err(|error| match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::UnknownMemberId | RDKafkaErrorCode::RebalanceInProgress | RDKafkaErrorCode::IllegalGeneration) => {
                Fault::stop("kafka: the group has running members; stop every instance of this consumer, then rewind")
            }
            _ => classify("moving the group's offsets", &error),
        })
    }
}

pub(crate) fn unknown_topic(topic: &str) -> Fault {
    Fault::refused(format!(
        "kafka: there is no topic `{topic}`; make it, or correct `topics`"
    ))
}

fn place(topic: &str, number: i32) -> Place {
    (topic.to_owned(), number)
}

fn list<'a>(
    places: impl Iterator<Item = (&'a Place, Offset)>,
) -> Result<TopicPartitionList, Fault> {
    let mut list = TopicPartitionList::new();
    for ((topic, number), offset) in places {
        list.add_partition_offset(topic, *number, offset)
            .map_err(|error| classify("an offset", &error))?;
    }
    Ok(list)
}

/// Offsets are below 2^63 by the protocol.
pub(crate) fn signed(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

/// The library's negative offsets are words, not places; here they cannot occur.
pub(crate) fn unsigned(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}
