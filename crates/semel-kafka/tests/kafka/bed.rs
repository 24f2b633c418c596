//! What the tests stand on: topics of their own, producers, a ledger in memory, and a worker that does what
//! the engine does with a source.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use semel_core::ledger::{ConsumerId, Fence, Instance, LaneId, Reached, SourceId};
use semel_core::source::{BoxFuture, Positions, Received, Settlement};
use semel_core::{Committed, Delivery, Fault, Limit, Settlements, Source};
use semel_kafka::{KafkaOptions, KafkaSource, StartAt};

/// Nothing here takes this long. A test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const ALL: Limit = Limit {
    count: 10_000,
    bytes: usize::MAX,
};

/// What `scripts/services env` says of the broker.
pub(crate) fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run `scripts/test`, or `scripts/services start kafka` and `eval \"$(scripts/services env)\"`")
    })
}

pub(crate) fn brokers() -> String {
    env("SEMEL_TEST_KAFKA_BROKERS")
}

/// How many rounds a storm has: the long form is `scripts/storm rebalance`.
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    match std::env::var("SEMEL_STORM").as_deref() {
        Ok("long") => long,
        Err(_) | Ok("" | "short") => short,
        Ok(other) => panic!("SEMEL_STORM={other}: say `long` or `short`"),
    }
}

/// A name nobody else uses.
pub(crate) fn fresh(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    format!(
        "{name}-{}-{nanos}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

pub(crate) fn config() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers());
    config
}

pub(crate) fn admin() -> AdminClient<DefaultClientContext> {
    config().create().unwrap()
}

pub(crate) async fn make(topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for (name, value) in settings {
        new = new.set(name, value);
    }
    let made = admin()
        .create_topics([&new], &AdminOptions::new())
        .await
        .unwrap();
    made.into_iter().for_each(|topic| drop(topic.unwrap()));
}

/// A topic for records that are older than a broker keeps any: it removes them as soon as it looks, every five minutes.
pub(crate) async fn topic_for_ever(name: &str) -> String {
    let topic = fresh(name);
    make(&topic, 1, &[("retention.ms", "-1")]).await;
    topic
}

pub(crate) async fn topic(name: &str, partitions: i32) -> String {
    let topic = fresh(name);
    make(&topic, partitions, &[]).await;
    topic
}

pub(crate) fn producer() -> ThreadedProducer<DefaultProducerContext> {
    config().set("linger.ms", "0").create().unwrap()
}

/// Produces one record per value, in order.
pub(crate) fn produce<V: AsRef<[u8]>>(
    topic: &str,
    partition: i32,
    values: impl IntoIterator<Item = V>,
) {
    let producer = producer();
    for value in values {
        let record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic)
            .partition(partition)
            .payload(value.as_ref());
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

pub(crate) fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

pub(crate) fn options(topic: &str, group: &str) -> KafkaOptions {
    let mut options = KafkaOptions::new([brokers()], [topic], group, StartAt::Earliest);
    options.session_timeout_ms = 10_000;
    options.commit_interval_ms = 50;
    options
}

/// The group's committed offset, as the broker knows it.
pub(crate) fn committed(group: &str, topic: &str, partition: i32) -> Option<i64> {
    let client: BaseConsumer = config().set("group.id", group).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition(topic, partition);
    let list = client.committed_offsets(list, PATIENCE).unwrap();
    match list.elements()[0].offset() {
        Offset::Offset(offset) => Some(offset),
        _ => None,
    }
}

/// Waits for a condition, bounded.
pub(crate) async fn until(what: &str, done: impl FnMut() -> bool) {
    within(PATIENCE, what, done).await;
}

pub(crate) async fn within(bound: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < bound, "in vain waited until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("in vain waited for {what}"))
}

pub(crate) fn proof() -> Committed {
    let lane = LaneId {
        consumer: ConsumerId(1),
        instance: Instance([0; 16]),
        lane: 0,
    };
    Committed::witnessed(Fence { lane, unit: 1 })
}

/// A ledger's positions, and a switch to take it away.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) reached: Mutex<HashMap<Arc<str>, Reached>>,
    pub(crate) away: AtomicBool,
}

impl Store {
    /// Writes positions, as a unit does: only ever raised.
    pub(crate) fn write(&self, positions: &[Reached]) {
        let mut reached = self.reached.lock().unwrap();
        for position in positions {
            let stored = reached
                .entry(position.partition.clone())
                .or_insert_with(|| position.clone());
            if position.next > stored.next {
                *stored = position.clone();
            }
        }
    }
}

impl Positions for Store {
    fn reached(&self, partition: &str) -> BoxFuture<'_, Result<Option<Reached>, Fault>> {
        let found = if self.away.load(Ordering::Acquire) {
            Err(Fault::down("the ledger is away"))
        } else {
            Ok(self.reached.lock().unwrap().get(partition).cloned())
        };
        Box::pin(std::future::ready(found))
    }
}

/// The position behind deliveries of whole partitions.
pub(crate) fn positions(deliveries: &[Delivery]) -> Vec<Reached> {
    let mut last: BTreeMap<Arc<str>, Reached> = BTreeMap::new();
    for delivery in deliveries {
        let position = &delivery.message.position;
        let reached = Reached {
            source: SourceId(1),
            partition: position.partition.clone(),
            next: position.offset.unwrap() + 1,
            mark: delivery.mark.clone().unwrap(),
        };
        last.insert(position.partition.clone(), reached);
    }
    last.into_values().collect()
}

/// A source with its ledger.
pub(crate) struct Worker {
    pub(crate) source: Arc<KafkaSource>,
    pub(crate) store: Arc<Store>,
}

impl Worker {
    pub(crate) async fn open(options: KafkaOptions, store: &Arc<Store>) -> Self {
        let source = KafkaSource::open(options, store.clone()).await.unwrap();
        Self::over(source, store)
    }

    pub(crate) fn over(source: KafkaSource, store: &Arc<Store>) -> Self {
        Self {
            source: Arc::new(source),
            store: store.clone(),
        }
    }

    pub(crate) async fn receive(&self, limit: Limit) -> Result<Received, Fault> {
        soon("a delivery", self.source.receive(limit)).await
    }

    pub(crate) async fn batch(&self, limit: Limit) -> Vec<Delivery> {
        match self.receive(limit).await.unwrap() {
            Received::Batch(batch) => batch,
            other => panic!("expected a batch, got {other:?}"),
        }
    }

    /// Exactly so many, however often the source is drained before they come.
    pub(crate) async fn take(&self, count: usize) -> Vec<Delivery> {
        let mut taken = Vec::new();
        while taken.len() < count {
            match self
                .receive(Limit {
                    count: count - taken.len(),
                    ..ALL
                })
                .await
                .unwrap()
            {
                Received::Batch(batch) => taken.extend(batch),
                Received::Drained => {}
                Received::End => panic!("a topic has no end"),
            }
        }
        taken
    }

    /// A unit over all of these commits and is settled. Returns how many acks were lost.
    pub(crate) async fn commit(&self, deliveries: Vec<Delivery>) -> usize {
        let positions = positions(&deliveries);
        self.store.write(&positions);
        let proof = proof();
        let receipts = deliveries
            .into_iter()
            .map(|d| d.receipt.ack(&proof))
            .collect();
        self.settle(receipts, positions).await
    }

    pub(crate) async fn settle(&self, receipts: Vec<Settlement>, positions: Vec<Reached>) -> usize {
        self.source
            .settle(Settlements {
                receipts,
                positions,
            })
            .await
            .unwrap()
            .lost
    }

    /// Handles everything until the source is drained; gives the values in order.
    pub(crate) async fn drain(&self) -> Vec<String> {
        let mut values = Vec::new();
        loop {
            match self.receive(ALL).await.unwrap() {
                Received::Batch(batch) => {
                    values.extend(batch.iter().map(value));
                    self.commit(batch).await;
                }
                Received::Drained => return values,
                Received::End => panic!("a topic has no end"),
            }
        }
    }

    /// The error that ends it.
    pub(crate) async fn stopped(&self) -> Fault {
        loop {
            match self.receive(ALL).await {
                Err(fault) if fault.class == semel_core::Class::Stop => return fault,
                Err(_) => tokio::task::yield_now().await,
                Ok(Received::Drained) => {}
                Ok(other) => panic!("expected a stop, got {other:?}"),
            }
        }
    }

    pub(crate) async fn close(&self) {
        self.source.close(Duration::from_secs(10)).await.unwrap();
    }
}

pub(crate) fn value(delivery: &Delivery) -> String {
    String::from_utf8_lossy(delivery.message.bytes()).into_owned()
}

pub(crate) fn offsets(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries
        .iter()
        .map(|d| d.message.position.offset.unwrap())
        .collect()
}
