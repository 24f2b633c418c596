//! Semel on a broker: a consumer of the bench with its sources opened and attached.

use std::sync::Arc;
use std::time::Duration;

use semel::staged::Staged;
use semel::{Ended, Observer, Outcome};
use semel_bench::book::{self, BenchConsumer, Pace};
use semel_bench::contest;
use semel_bench::measure::Taken;
use semel_bench::ops::Work;
use semel_bench::tables::{Error, Place};
use semel_core::Source;
use semel_kafka::{KafkaOptions, KafkaSource, StartAt};
use semel_postgres::PostgresLedger;
use semel_rabbitmq::RabbitSource;
use tokio::sync::watch;

use crate::stock::{Broker, Stock, told};

const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// What may be put around a source.
pub(crate) type Around<'a> = &'a (dyn Fn(Arc<dyn Source>) -> Arc<dyn Source> + Sync);

/// An open source, to be closed.
enum Opened {
    Kafka(Arc<KafkaSource>),
    Rabbit(Arc<RabbitSource>),
}

/// Runs a staged handler on a stock until `shutdown` is ready. `around` may put something around each source.
pub(crate) async fn run<S: Staged>(
    ledger: &Arc<PostgresLedger>,
    (stock, around): (&Stock, Around<'_>),
    (staged, pace): (S, Pace),
    observer: Arc<dyn Observer>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let names = sources(stock.broker);
    let mut consumer = book::enroll(ledger, "bench", staged, names, pace, observer).await?;
    let mut opened = Vec::new();
    for name in names {
        let (attached, source) = attach(consumer, (stock, around), name).await?;
        consumer = attached;
        opened.push(source);
    }
    book::finish(consumer, shutdown).await?;
    for source in opened {
        source.close().await?;
    }
    Ok(())
}

/// A topic is one source; of a queue two channels take, as the rivals' connections do.
const fn sources(broker: Broker) -> &'static [&'static str] {
    match broker {
        Broker::Kafka => &["topic"],
        Broker::Rabbit => &["queue-1", "queue-2"],
    }
}

async fn attach<S: Staged>(
    consumer: BenchConsumer<S>,
    (stock, around): (&Stock, Around<'_>),
    name: &str,
) -> Result<(BenchConsumer<S>, Opened), Error> {
    Ok(match stock.broker {
        Broker::Kafka => {
            let options = KafkaOptions::new(
                [&stock.address],
                [&stock.name],
                // The ledger is a new one each time; the group's offsets are only told, never asked.
                format!("{}-semel", stock.name),
                StartAt::Earliest,
            );
            let positions = consumer.positions(name);
            let source = Arc::new(KafkaSource::open(options, positions).await.map_err(told)?);
            (
                consumer.attach(name, around(source.clone())),
                Opened::Kafka(source),
            )
        }
        Broker::Rabbit => {
            let source = Arc::new(RabbitSource::open(stock.rabbit()).await.map_err(told)?);
            (
                consumer.attach(name, around(source.clone())),
                Opened::Rabbit(source),
            )
        }
    })
}

impl Opened {
    async fn close(self) -> Result<(), Error> {
        match self {
            Self::Kafka(source) => source.close(CLOSE_WITHIN).await.map_err(told)?,
            Self::Rabbit(source) => source.close().await,
        }
        Ok(())
    }
}

/// What ended so far.
#[derive(Debug, Clone, Copy, Default)]
struct Ending {
    deliveries: u64,
    applied: u64,
}

/// Counts what ends.
struct Count(watch::Sender<Ending>);

impl Observer for Count {
    fn ended(&self, ended: Vec<Ended>) {
        let is_applied = |one: &&Ended| one.ending.outcome == Outcome::Applied;
        let applied = ended.iter().filter(is_applied).count();
        let count = |count| u64::try_from(count).expect("a unit is small");
        self.0.send_modify(|sum| {
            sum.deliveries += count(ended.len());
            sum.applied += count(applied);
        });
    }
}

/// The time until every message is committed. A broker may deliver some of them again meanwhile, so all deliveries and
/// all operations must have come.
pub(crate) async fn drain<S: Staged>(
    place: &Place,
    ledger: &Arc<PostgresLedger>,
    stock: &Stock,
    handler: (S, Pace),
    work: &Work,
) -> Result<Taken, Error> {
    let (sum, mut seen) = watch::channel(Ending::default());
    let watch = contest::watch(place).await?;
    let mut taken = None;
    let all = async {
        // The sender lives as long as the consumer.
        let _ = seen
            .wait_for(|sum| sum.deliveries >= work.count && sum.applied >= work.distinct)
            .await;
        taken = Some(watch.stop(work.count));
    };
    let alone = |source| source;
    run(ledger, (stock, &alone), handler, Arc::new(Count(sum)), all).await?;
    taken.ok_or_else(|| "the consumer ended by itself".into())
}
