//! How the rivals consume: the plain client of each broker, at its best. Each feed is a client of its own; Kafka's
//! partitions are dealt out by hand, so that no rival waits for a group.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection};
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use semel_bench::tables::Error;
use tokio::sync::watch;

use crate::stock::{Broker, PARTITIONS, Stock};

/// How long a batch that has begun waits for more.
const LINGER: Duration = Duration::from_millis(5);

/// How long Kafka may take to tell where a partition ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// A consuming client.
#[expect(
    clippy::large_enum_variant,
    reason = "there are few, and each lives as long as its run"
)]
pub(crate) enum Feed {
    Kafka(Kafka),
    Rabbit(Rabbit),
}

pub(crate) struct Kafka {
    consumer: StreamConsumer,
    topic: String,
    left: u64,
    /// The last offset that was taken of each partition.
    taken: BTreeMap<i32, i64>,
}

pub(crate) struct Rabbit {
    /// Dropped last: it closes the channel.
    _connection: Connection,
    channel: Channel,
    consumer: lapin::Consumer,
    /// Of the whole queue: all feeds count it down.
    left: watch::Sender<u64>,
    tag: u64,
}

/// `count` feeds that share a stock of `total` messages, each with room for `prefetch` of them.
pub(crate) async fn open(
    stock: &Stock,
    count: usize,
    total: u64,
    prefetch: u16,
) -> Result<Vec<Feed>, Error> {
    let left = watch::Sender::new(total);
    let mut feeds = Vec::new();
    for number in 0..count {
        feeds.push(match stock.broker {
            Broker::Kafka => {
                let share = (0..PARTITIONS).skip(number).step_by(count);
                Feed::Kafka(tokio::task::block_in_place(|| Kafka::open(stock, share))?)
            }
            Broker::Rabbit => Feed::Rabbit(Rabbit::open(stock, prefetch, left.clone()).await?),
        });
    }
    Ok(feeds)
}

impl Feed {
    /// The next messages, at most `count`; 0 when nothing is left.
    pub(crate) async fn take(
        &mut self,
        count: usize,
        each: impl FnMut(&[u8]) -> Result<(), Error> + Send,
    ) -> Result<usize, Error> {
        match self {
            Self::Kafka(kafka) => kafka.take(count, each).await,
            Self::Rabbit(rabbit) => rabbit.take(count, each).await,
        }
    }

    /// What was taken is done: the offset is stored, for the client to commit with the next ones as is its default;
    /// or one ack for all.
    pub(crate) async fn done(&mut self) -> Result<(), Error> {
        match self {
            Self::Kafka(kafka) => {
                for (partition, offset) in std::mem::take(&mut kafka.taken) {
                    kafka
                        .consumer
                        .store_offset(&kafka.topic, partition, offset)?;
                }
            }
            Self::Rabbit(rabbit) => {
                let all = BasicAckOptions { multiple: true };
                rabbit.channel.basic_ack(rabbit.tag, all).await?;
            }
        }
        Ok(())
    }
}

impl Kafka {
    fn open(stock: &Stock, partitions: impl Iterator<Item = i32>) -> Result<Self, Error> {
        let consumer: StreamConsumer = stock
            .client()
            .set("group.id", format!("{}-rival", stock.name))
            .set("enable.auto.offset.store", "false")
            .create()?;
        let mut list = TopicPartitionList::new();
        let mut left = 0;
        for partition in partitions {
            list.add_partition_offset(&stock.name, partition, Offset::Beginning)?;
            let (low, high) = consumer.fetch_watermarks(&stock.name, partition, PATIENCE)?;
            left += u64::try_from(high - low)?;
        }
        consumer.assign(&list)?;
        Ok(Self {
            consumer,
            topic: stock.name.clone(),
            left,
            taken: BTreeMap::new(),
        })
    }

    async fn take(
        &mut self,
        count: usize,
        mut each: impl FnMut(&[u8]) -> Result<(), Error> + Send,
    ) -> Result<usize, Error> {
        let mut taken = 0;
        while taken < count && self.left > 0 {
            let message = match self.consumer.recv().now_or_never() {
                Some(message) => message?,
                None if taken == 0 => self.consumer.recv().await?,
                None => match tokio::time::timeout(LINGER, self.consumer.recv()).await {
                    Ok(message) => message?,
                    Err(_) => break,
                },
            };
            each(message.payload().unwrap_or_default())?;
            self.taken.insert(message.partition(), message.offset());
            self.left -= 1;
            taken += 1;
        }
        Ok(taken)
    }
}

impl Rabbit {
    async fn open(stock: &Stock, prefetch: u16, left: watch::Sender<u64>) -> Result<Self, Error> {
        let connection = stock.connect().await?;
        let channel = connection.create_channel().await?;
        channel
            .basic_qos(prefetch, BasicQosOptions::default())
            .await?;
        let consumer = channel
            .basic_consume(
                stock.name.as_str().into(),
                "".into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            )
            .await?;
        Ok(Self {
            _connection: connection,
            channel,
            consumer,
            left,
            tag: 0,
        })
    }

    async fn take(
        &mut self,
        count: usize,
        mut each: impl FnMut(&[u8]) -> Result<(), Error> + Send,
    ) -> Result<usize, Error> {
        let mut taken = 0;
        let mut gone = self.left.subscribe();
        while taken < count {
            let delivery = match self.consumer.next().now_or_never() {
                Some(delivery) => delivery,
                None if taken == 0 => tokio::select! {
                    delivery = self.consumer.next() => delivery,
                    _ = gone.wait_for(|left| *left == 0) => break,
                },
                None => match tokio::time::timeout(LINGER, self.consumer.next()).await {
                    Ok(delivery) => delivery,
                    Err(_) => break,
                },
            };
            let delivery = delivery.ok_or("the queue's consumer was cancelled")??;
            each(&delivery.data)?;
            self.tag = delivery.delivery_tag;
            taken += 1;
        }
        let count = u64::try_from(taken)?;
        self.left.send_modify(|left| *left -= count);
        Ok(taken)
    }
}
