//! Queues and topics of real brokers for one test each, gone with it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, ConnectionProperties};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// A name that no other test has.
fn fresh(what: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    format!(
        "semel-cli-{what}-{}-{nanos}",
        NUMBER.fetch_add(1, Ordering::Relaxed)
    )
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// A queue of RabbitMQ.
#[derive(Debug)]
pub(crate) struct Rabbit {
    pub(crate) url: String,
    pub(crate) queue: String,
}

impl Rabbit {
    /// A quorum queue without a delivery limit.
    pub(crate) fn queue(what: &str) -> Self {
        Self::with(what, &[("x-delivery-limit", AMQPValue::LongInt(-1))])
    }

    /// A quorum queue with these arguments.
    pub(crate) fn with(what: &str, arguments: &[(&str, AMQPValue)]) -> Self {
        let url = std::env::var("SEMEL_TEST_RABBITMQ_URL")
            .expect("SEMEL_TEST_RABBITMQ_URL is not set: run scripts/test");
        let queue = fresh(what);
        let mut table = FieldTable::default();
        table.insert(
            "x-queue-type".into(),
            AMQPValue::LongString("quorum".into()),
        );
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let how = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        wait(async {
            let connection = Connection::connect(&url, ConnectionProperties::default())
                .await
                .expect("RabbitMQ answers");
            let channel = connection.create_channel().await.unwrap();
            channel
                .queue_declare(queue.as_str().into(), how, table)
                .await
                .unwrap();
        });
        Self { url, queue }
    }

    /// The `[sources.NAME]` table.
    pub(crate) fn source(&self, name: &str) -> String {
        let Self { url, queue } = self;
        format!("[sources.{name}]\ntype = \"rabbitmq\"\nurl = \"{url}\"\nqueue = \"{queue}\"\n")
    }
}

impl Drop for Rabbit {
    fn drop(&mut self) {
        // A queue that is left behind is litter and no failure of the test.
        let _ = wait(async {
            let connection =
                Connection::connect(&self.url, ConnectionProperties::default()).await?;
            let channel = connection.create_channel().await?;
            let queue = self.queue.as_str().into();
            channel
                .queue_delete(queue, QueueDeleteOptions::default())
                .await
        });
    }
}

/// A `[sources.NAME]` table for a topic.
pub(crate) fn kafka_source(name: &str, brokers: &str, topic: &str) -> String {
    format!(
        "[sources.{name}]\ntype = \"kafka\"\nbrokers = [\"{brokers}\"]\ntopics = [\"{topic}\"]\n\
         group = \"{topic}\"\nstart_at = \"earliest\"\ncommit_interval_ms = 20\nsession_timeout_ms = 6000\n"
    )
}

/// A topic of Kafka, of one partition.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) brokers: String,
    pub(crate) name: String,
}

impl Topic {
    /// A topic with these settings.
    pub(crate) fn with(what: &str, settings: &[(&str, &str)]) -> Self {
        let brokers = std::env::var("SEMEL_TEST_KAFKA_BROKERS")
            .expect("SEMEL_TEST_KAFKA_BROKERS is not set: run scripts/test");
        let topic = Self {
            brokers,
            name: fresh(what),
        };
        assert!(topic.made(settings), "{}", topic.name);
        topic
    }

    /// Leaves a word with the group's offset 0, as a member does that found the topic made again.
    pub(crate) fn alarm(&self) {
        let client: BaseConsumer = self.config().set("group.id", &self.name).create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.name, 0, Offset::Offset(0))
            .unwrap();
        let mut place = list.find_partition(&self.name, 0).unwrap();
        place.set_metadata("semel: made again");
        client.commit(&list, CommitMode::Sync).unwrap();
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.config().create().unwrap()
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config
    }

    fn made(&self, settings: &[(&str, &str)]) -> bool {
        let new = NewTopic::new(&self.name, 1, TopicReplication::Fixed(1));
        let new = settings
            .iter()
            .fold(new, |new, (name, value)| new.set(name, value));
        let made = wait(self.admin().create_topics([&new], &AdminOptions::new())).unwrap();
        made.into_iter().all(|topic| topic.is_ok())
    }

    /// Makes the broker forget what lies before this offset.
    pub(crate) fn remove_before(&self, offset: i64) {
        let mut places = TopicPartitionList::new();
        places
            .add_partition_offset(&self.name, 0, Offset::Offset(offset))
            .unwrap();
        wait(self.admin().delete_records(&places, &AdminOptions::new())).unwrap();
    }

    /// Deletes the topic and makes it again under its name.
    pub(crate) fn make_again(&self) {
        let deleted = wait(
            self.admin()
                .delete_topics(&[&self.name], &AdminOptions::new()),
        );
        deleted
            .unwrap()
            .into_iter()
            .for_each(|topic| drop(topic.unwrap()));
        let since = std::time::Instant::now();
        // The broker deletes in the background.
        while !self.made(&[]) {
            assert!(since.elapsed() < Duration::from_secs(60), "{}", self.name);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Produces one record a line, in order.
    pub(crate) fn produce<L: AsRef<str>>(&self, lines: impl IntoIterator<Item = L>) {
        let producer: BaseProducer = self.config().set("linger.ms", "0").create().unwrap();
        for line in lines {
            let record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&self.name)
                .partition(0)
                .payload(line.as_ref().as_bytes());
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        producer.flush(Duration::from_secs(60)).unwrap();
    }

    /// The `[sources.NAME]` table.
    pub(crate) fn source(&self, name: &str) -> String {
        kafka_source(name, &self.brokers, &self.name)
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        // A topic that is left behind is litter and no failure of the test.
        let _ = wait(
            self.admin()
                .delete_topics(&[&self.name], &AdminOptions::new()),
        );
    }
}
