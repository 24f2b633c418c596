//! "Game goes on": how long fresh operations take from publish to commit at a steady rate, in calm and while ten copies
//! of earlier operations come with each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lapin::options::BasicPublishOptions;
use lapin::{BasicProperties, Channel, Connection};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, ThreadedProducer};
use semel::{Ended, Observer, Outcome};
use semel_bench::book::{self, Pace, Spread};
use semel_bench::contest::Ground;
use semel_bench::credits::{Balances, Credits, Width};
use semel_bench::ops::{Credit, Work};
use semel_bench::tables::{Error, Place};
use semel_core::source::{BoxFuture, Received, Settled};
use semel_core::{Fault, Key, Limit, Message, Settlements, Source};
use semel_storm::Dice;
use tokio::sync::watch;
use uuid::Uuid;

use crate::consumer;
use crate::stock::{Broker, Stock};

/// Copies with each fresh operation of the storm.
const COPIES: u64 = 10;

/// Calm and storm take turns, so that one disturbance of the machine decides nothing.
const TURNS: u32 = 3;

/// How long each phase of a turn is measured.
const PHASE: Duration = Duration::from_secs(15);

/// Before the first turn, as in the storm: connections open, statements are prepared, accounts are known, and the broker
/// compiles its code (a fresh JVM makes the first seconds twenty times as slow).
const WARM_UP: Duration = Duration::from_secs(30);

/// A copy is of one of so many operations before it.
const COPY_DISTANCE_MAX: u64 = 5_000;

/// How often messages that are due are published.
const TICK: Duration = Duration::from_millis(1);

const SEED: u64 = 20_261_130;

/// Where a payload's id begins.
const ID_AT: usize = r#"{"id":""#.len();

/// AMQP's word for "keep it on disk".
const PERSISTENT: u8 = 2;

/// Latencies, ms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) most: f64,
}

impl Times {
    fn of(mut took: Vec<f64>) -> Self {
        took.sort_unstable_by(f64::total_cmp);
        let share = |share: usize| took.get(took.len() * share / 100).copied();
        Self {
            p50: share(50).unwrap_or(f64::NAN),
            p99: share(99).unwrap_or(f64::NAN),
            most: took.last().copied().unwrap_or(f64::NAN),
        }
    }

    /// The middle of several turns' times, and the most of all.
    fn middle(turns: impl Iterator<Item = Self> + Clone) -> Self {
        let middle = |part: fn(Self) -> f64| {
            let mut values: Vec<f64> = turns.clone().map(part).collect();
            values.sort_unstable_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        };
        Self {
            p50: middle(|times| times.p50),
            p99: middle(|times| times.p99),
            most: turns.map(|times| times.most).fold(f64::NAN, f64::max),
        }
    }
}

/// What a phase showed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phase {
    /// From publish to the told commit.
    pub(crate) all: Times,
    /// Of that, from publish until Semel is handed the message: the broker, its clients, and the wait for a processor.
    pub(crate) way: Times,
    /// The rest: what Semel and the database take.
    pub(crate) work: Times,
    /// Messages published a second, copies included.
    pub(crate) rate: f64,
}

impl Phase {
    fn middle(turns: &[Self]) -> Self {
        let middle = |part: fn(&Self) -> Times| Times::middle(turns.iter().map(part));
        Self {
            all: middle(|phase| phase.all),
            way: middle(|phase| phase.way),
            work: middle(|phase| phase.work),
            rate: turns.iter().map(|phase| phase.rate).sum::<f64>() / turns.len() as f64,
        }
    }
}

/// Calm, and storm.
pub(crate) async fn run(
    broker: Broker,
    ground: &Ground,
    fresh_rate: u64,
) -> Result<(Phase, Phase), Error> {
    let place = Place::make(&ground.url, ground.accounts).await?;
    let ledger = book::ledger(&place).await?;
    let stock = Stock::make(broker).await?;
    let seconds = (2 * TURNS * PHASE + WARM_UP).as_secs();
    let (ear, ended) = Ear::new(fresh_rate * seconds)?;
    let handler = Credits::new(Width::Bits64, Balances::Deltas);
    let names = handler.names();
    let pace = Pace {
        lanes: 2,
        batch: 1_000,
        again: false,
        by: Spread::Partition,
    };
    let game = Game {
        press: Press::open(&stock, Client::Game).await?,
        again: Press::open(&stock, Client::Retrying).await?,
        ear: ear.clone(),
        ended,
        fresh_rate,
        accounts: ground.accounts,
    };
    let (over, wait) = tokio::sync::oneshot::channel();
    let playing = tokio::spawn(async move {
        let played = game.play().await;
        // The consumer may have ended by itself; then its own error is told.
        let _ = over.send(());
        played
    });
    let hearing = ear.clone();
    let around = move |source| -> Arc<dyn Source> {
        Arc::new(Heard {
            source,
            ear: hearing.clone(),
        })
    };
    consumer::run(&ledger, (&stock, &around), (handler, pace), ear, async {
        let _ = wait.await;
    })
    .await?;
    let (calm, storm, work) = playing.await??;
    place.check(&work, &names).await?;
    place.drop_it().await?;
    stock.drop_it().await?;
    Ok((calm, storm))
}

/// Hears which operations are committed.
struct Ear {
    began: Instant,
    /// When each fresh operation was published, µs since the start.
    published: Vec<AtomicU64>,
    /// When it was first handed out; 0 before.
    received: Vec<AtomicU64>,
    /// How long each took, ms: in all, and until it was handed out.
    took: Mutex<Vec<(f64, f64)>>,
    /// Deliveries that ended.
    ended: watch::Sender<u64>,
}

impl Ear {
    fn new(operations: u64) -> Result<(Arc<Self>, watch::Receiver<u64>), Error> {
        let (ended, seen) = watch::channel(0);
        let ear = Self {
            began: Instant::now(),
            published: times(operations)?,
            received: times(operations)?,
            took: Mutex::default(),
            ended,
        };
        Ok((Arc::new(ear), seen))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn received(&self, message: &Message) {
        let number = message_key(message).map(number_of);
        if let Some(received) = number.and_then(|number| self.received.get(number)) {
            let now = self.now();
            let _ = received.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The latencies since the last call.
    fn take(&self) -> Vec<(f64, f64)> {
        std::mem::take(&mut self.took.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for Ear {
    fn ended(&self, ended: Vec<Ended>) {
        let now = self.now();
        let mut took = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        for one in &ended {
            let fresh = one.ending.outcome == Outcome::Applied;
            let number = one.key.map(number_of).filter(|_| fresh);
            if let Some(number) = number.filter(|number| *number < self.published.len()) {
                let published = self.published[number].load(Ordering::Relaxed);
                let received = self.received[number].load(Ordering::Relaxed);
                took.push((ms(published, now), ms(published, received)));
            }
        }
        drop(took);
        let count = u64::try_from(ended.len()).expect("a unit is small");
        self.ended.send_modify(|sum| *sum += count);
    }
}

fn times(count: u64) -> Result<Vec<AtomicU64>, Error> {
    let count = usize::try_from(count)?;
    Ok((0..count).map(|_| AtomicU64::new(0)).collect())
}

/// Between two times in µs.
fn ms(from: u64, until: u64) -> f64 {
    let micros = u32::try_from(until.saturating_sub(from));
    micros.map_or(f64::INFINITY, f64::from) / 1e3
}

/// A source whose deliveries are heard as they are handed out.
struct Heard {
    source: Arc<dyn Source>,
    ear: Arc<Ear>,
}

impl Source for Heard {
    fn receive(&self, limit: Limit) -> BoxFuture<'_, Result<Received, Fault>> {
        Box::pin(async move {
            let received = self.source.receive(limit).await?;
            if let Received::Batch(deliveries) = &received {
                for delivery in deliveries {
                    self.ear.received(&delivery.message);
                }
            }
            Ok(received)
        })
    }

    fn settle(&self, settlements: Settlements) -> BoxFuture<'_, Result<Settled, Fault>> {
        self.source.settle(settlements)
    }
}

/// The payload begins with its id, as [`Press::send`] writes it.
fn message_key(message: &Message) -> Option<Key> {
    let id = message.bytes().get(ID_AT..ID_AT + 36)?;
    Some(Key::from_bytes(
        Uuid::try_parse_ascii(id).ok()?.into_bytes(),
    ))
}

/// A key's tail holds the operation's number.
fn key_of(number: u64) -> Key {
    let mut tail = [0; 10];
    tail[2..].copy_from_slice(&number.to_be_bytes());
    // Any fixed beginning: a thousand operations a millisecond.
    Key::v7(1_790_000_000_000 + number / 1_000, tail)
}

fn number_of(key: Key) -> usize {
    let bytes = key.into_bytes();
    let tail = *bytes.last_chunk().expect("sixteen bytes have eight");
    // Without the two bits of the variant.
    usize::try_from(u64::from_be_bytes(tail) & (u64::MAX >> 2)).unwrap_or(usize::MAX)
}

/// Publishes, as a game's servers do.
struct Game {
    press: Press,
    /// Of the clients that send again. Their queue is none of the game's: behind it a fresh operation would wait for 44 ms
    /// (p99, measured) before it is in the topic at all.
    again: Press,
    ear: Arc<Ear>,
    ended: watch::Receiver<u64>,
    fresh_rate: u64,
    accounts: u64,
}

impl Game {
    async fn play(mut self) -> Result<(Phase, Phase, Work), Error> {
        let mut work = Work {
            folder: PathBuf::new(),
            files: Vec::new(),
            count: 0,
            distinct: 0,
            balances: BTreeMap::new(),
        };
        let mut dice = Dice::new(SEED);
        self.phase(&mut work, &mut dice, COPIES, WARM_UP).await?;
        let (mut calm, mut storm) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            calm.push(self.phase(&mut work, &mut dice, 0, PHASE).await?);
            storm.push(self.phase(&mut work, &mut dice, COPIES, PHASE).await?);
        }
        Ok((Phase::middle(&calm), Phase::middle(&storm), work))
    }

    /// Publishes for `time`, then waits until all of it is committed.
    async fn phase(
        &mut self,
        work: &mut Work,
        dice: &mut Dice,
        copies: u64,
        time: Duration,
    ) -> Result<Phase, Error> {
        let began = Instant::now();
        let total = self.fresh_rate * time.as_secs() * (1 + copies);
        let each = time.div_f64(total as f64);
        let mut tick = tokio::time::interval(TICK);
        let mut sent = 0;
        while sent < total {
            tick.tick().await;
            while sent < total && began.elapsed() >= each.mul_f64(sent as f64) {
                if sent % (1 + copies) == 0 {
                    self.publish_fresh(work).await?;
                } else {
                    self.publish_copy(work, dice).await?;
                }
                sent += 1;
            }
        }
        let rate = total as f64 / began.elapsed().as_secs_f64();
        let count = work.count;
        self.ended.wait_for(|ended| *ended >= count).await?;
        let took = self.ear.take();
        let pick = |part: fn(&(f64, f64)) -> f64| Times::of(took.iter().map(part).collect());
        Ok(Phase {
            all: pick(|(all, _)| *all),
            way: pick(|(_, way)| *way),
            work: pick(|(all, way)| all - way),
            rate,
        })
    }

    async fn publish_fresh(&self, work: &mut Work) -> Result<(), Error> {
        let number = work.distinct;
        let credit = self.credit(number);
        work.count += 1;
        work.distinct += 1;
        *work.balances.entry(credit.account).or_default() += credit.amount;
        self.ear.published[usize::try_from(number)?].store(self.ear.now(), Ordering::Relaxed);
        self.press.send(&credit).await
    }

    /// Of an operation that was published not long ago.
    async fn publish_copy(&self, work: &mut Work, dice: &mut Dice) -> Result<(), Error> {
        let back = 1 + dice.below(COPY_DISTANCE_MAX.min(work.distinct));
        work.count += 1;
        self.again.send(&self.credit(work.distinct - back)).await
    }

    /// The operation of this number: always the same.
    fn credit(&self, number: u64) -> Credit {
        let mut dice = Dice::new(SEED ^ number);
        let mut small = |end| i64::try_from(dice.below(end)).expect("far below 63 bits");
        Credit {
            id: Uuid::from_bytes(key_of(number).into_bytes()),
            account: small(self.accounts),
            amount: small(10_000) + 1,
        }
    }
}

/// Whose client it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// Sends fresh operations.
    Game,
    /// Sends operations again.
    Retrying,
}

/// A publishing client that waits for no confirm: the check at the end shows that all arrived.
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Press {
    Kafka(ThreadedProducer<DefaultProducerContext>, String),
    Rabbit(
        Channel,
        String,
        #[expect(dead_code, reason = "kept open")] Connection,
    ),
}

impl Press {
    async fn open(stock: &Stock, client: Client) -> Result<Self, Error> {
        let name = stock.name.clone();
        Ok(match stock.broker {
            Broker::Kafka => {
                let mut config = stock.client();
                if client == Client::Game {
                    // A server that wants an answer lingers less than the client's 5 ms.
                    config.set("linger.ms", "1");
                }
                Self::Kafka(config.create()?, name)
            }
            Broker::Rabbit => {
                let connection = stock.connect().await?;
                Self::Rabbit(connection.create_channel().await?, name, connection)
            }
        })
    }

    async fn send(&self, credit: &Credit) -> Result<(), Error> {
        let Credit {
            id,
            account,
            amount,
        } = credit;
        let payload = format!(r#"{{"id":"{id}","account":{account},"amount":{amount}}}"#);
        match self {
            Self::Kafka(producer, topic) => {
                let key = account.to_string();
                let record = BaseRecord::to(topic).key(&key).payload(&payload);
                producer.send(record).map_err(|(error, _)| error)?;
            }
            Self::Rabbit(channel, queue, _) => {
                let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
                let how = BasicPublishOptions::default();
                channel
                    .basic_publish(
                        "".into(),
                        queue.as_str().into(),
                        how,
                        payload.as_bytes(),
                        properties,
                    )
                    .await?;
            }
        }
        Ok(())
    }
}
