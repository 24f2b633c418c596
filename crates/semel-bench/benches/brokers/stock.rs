//! What is published for a contestant to consume: a topic of Kafka, or a quorum queue of RabbitMQ.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use semel_bench::ops::Work;
use semel_bench::tables::Error;
use semel_core::{Fault, Outgoing, Sink};
use semel_kafka::{KafkaSink, KafkaSinkOptions};
use semel_rabbitmq::{Declare, RabbitOptions, RabbitSink, RabbitSinkOptions, RabbitSource};

/// Partitions of a topic: as many as the naive consumer has connections.
pub(crate) const PARTITIONS: i32 = 8;

/// Messages that are published together.
const PUBLISH_COUNT: usize = 10_000;

/// Lines taken from one file before the next has its turn.
const TURN: usize = 250;

/// A broker under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Broker {
    Kafka,
    Rabbit,
}

impl Broker {
    pub(crate) const ALL: [Self; 2] = [Self::Kafka, Self::Rabbit];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kafka => "Kafka",
            Self::Rabbit => "RabbitMQ",
        }
    }

    /// Its address, from the environment.
    pub(crate) fn address(self) -> Result<String, Error> {
        let name = match self {
            Self::Kafka => "SEMEL_TEST_KAFKA_BROKERS",
            Self::Rabbit => "SEMEL_TEST_RABBITMQ_URL",
        };
        std::env::var(name).map_err(|_| {
            format!("{name} is not set; start the services: eval \"$(scripts/services env)\"")
                .into()
        })
    }
}

/// A topic or a queue of this run alone.
#[derive(Debug, Clone)]
pub(crate) struct Stock {
    pub(crate) broker: Broker,
    pub(crate) address: String,
    pub(crate) name: String,
}

impl Stock {
    /// Makes it, empty.
    pub(crate) async fn make(broker: Broker) -> Result<Self, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let stock = Self {
            broker,
            address: broker.address()?,
            name: format!(
                "semel-bench-{}-{}",
                std::process::id(),
                COUNT.fetch_add(1, Ordering::Relaxed)
            ),
        };
        match broker {
            Broker::Kafka => {
                let topic = NewTopic::new(&stock.name, PARTITIONS, TopicReplication::Fixed(1));
                let made = stock
                    .admin()?
                    .create_topics([&topic], &AdminOptions::new())
                    .await?;
                made.into_iter()
                    .try_for_each(|made| made.map(drop))
                    .map_err(|(topic, code)| format!("{topic}: {code}"))?;
            }
            Broker::Rabbit => {
                let source = RabbitSource::open(stock.rabbit()).await;
                source.map_err(told)?.close().await;
            }
        }
        Ok(stock)
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>, Error> {
        Ok(self.client().create()?)
    }

    /// Settings of a client of Kafka.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.address);
        config
    }

    /// Options of a source of RabbitMQ.
    pub(crate) fn rabbit(&self) -> RabbitOptions {
        RabbitOptions {
            declare: Declare::Quorum,
            ..RabbitOptions::new(&self.address, &self.name)
        }
    }

    /// A connection to RabbitMQ.
    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        Ok(Connection::connect(&self.address, ConnectionProperties::default()).await?)
    }

    /// Publishes the whole work: a turn of each file, with the account as the message key.
    pub(crate) async fn fill(&self, work: &Work) -> Result<(), Error> {
        let sink: Box<dyn Sink> = match self.broker {
            Broker::Kafka => {
                let options = KafkaSinkOptions::new([&self.address], &self.name);
                Box::new(KafkaSink::open(options).await.map_err(told)?)
            }
            Broker::Rabbit => {
                let options = RabbitSinkOptions::to_queue(&self.address, &self.name);
                Box::new(RabbitSink::open(options).await.map_err(told)?)
            }
        };
        let mut files = Vec::new();
        for file in &work.files {
            files.push(BufReader::new(File::open(work.folder.join(file))?).lines());
        }
        let mut batch = Vec::new();
        while turn(&mut files, &mut batch)? {
            if batch.len() >= PUBLISH_COUNT {
                sink.publish(&batch).await.map_err(told)?;
                batch.clear();
            }
        }
        sink.publish(&batch).await.map_err(told)
    }

    /// Messages that wait in the queue.
    pub(crate) async fn depth(&self) -> Result<u32, Error> {
        let connection = self.connect().await?;
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let channel = connection.create_channel().await?;
        let queue = channel
            .queue_declare(self.name.as_str().into(), passive, FieldTable::default())
            .await?;
        Ok(queue.message_count())
    }

    /// Deletes it.
    pub(crate) async fn drop_it(self) -> Result<(), Error> {
        match self.broker {
            Broker::Kafka => {
                self.admin()?
                    .delete_topics(&[self.name.as_str()], &AdminOptions::new())
                    .await?;
            }
            Broker::Rabbit => {
                let connection = self.connect().await?;
                let channel = connection.create_channel().await?;
                channel
                    .queue_delete(self.name.as_str().into(), QueueDeleteOptions::default())
                    .await?;
            }
        }
        Ok(())
    }
}

/// A fault as an error of a bench.
pub(crate) fn told(fault: Fault) -> Error {
    fault.to_string().into()
}

/// Takes a turn of each file. `false` when nothing is left.
fn turn(files: &mut [Lines<BufReader<File>>], batch: &mut Vec<Outgoing>) -> Result<bool, Error> {
    let before = batch.len();
    for lines in files {
        for line in lines.take(TURN) {
            let line = line?;
            batch.push(Outgoing {
                key: None,
                message_key: Some(account(&line)?.into()),
                payload: Some(Bytes::from(line)),
                headers: Vec::new(),
            });
        }
    }
    Ok(batch.len() > before)
}

/// The account that a line credits.
fn account(line: &str) -> Result<String, Error> {
    let line: serde_json::Value = serde_json::from_str(line)?;
    let account = line.get("account").or(line.get("credit"));
    Ok(account.ok_or("a line without an account")?.to_string())
}
