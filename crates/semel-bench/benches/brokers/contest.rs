//! Who consumes from a broker, one run each: a schema of its own, a full topic or queue, the clock, the exact check.

use std::collections::BTreeMap;
use std::sync::Arc;

use semel_bench::book::{self, PLAYER, Pace, Spread};
use semel_bench::contest::{self, Ground};
use semel_bench::credits::{Balances, Credits, Width};
use semel_bench::measure::{Rounds, Taken};
use semel_bench::naive_book;
use semel_bench::ops::{self, Work};
use semel_bench::tables::{Error, Place, RIVALS};
use semel_postgres::PostgresLedger;

use crate::stock::{Broker, Stock};
use crate::{consumer, feed, rivals};

/// Connections of the naive consumer.
const NAIVE_CONNECTIONS: usize = 8;

/// Deliveries a naive consumer of RabbitMQ has in hand: nobody waits for the next, nobody hoards.
const NAIVE_PREFETCH: u16 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contestant {
    Naive,
    /// The naive consumer of the Book's rows.
    NaiveBook,
    Expert,
    /// The client alone.
    Consume,
    /// The database alone.
    Database,
    Credits,
    Book,
}

impl Contestant {
    pub(crate) const ALL: [Self; 7] = [
        Self::Naive,
        Self::NaiveBook,
        Self::Expert,
        Self::Consume,
        Self::Database,
        Self::Credits,
        Self::Book,
    ];

    pub(crate) fn name(self, Size { batch, connections }: Size) -> String {
        match self {
            Self::Naive => {
                format!("naive, one transaction a message, {NAIVE_CONNECTIONS} connections")
            }
            Self::NaiveBook => format!(
                "naive, the Book's rows, one transaction a message, {NAIVE_CONNECTIONS} connections"
            ),
            Self::Expert => format!("expert's batch {batch}, {connections} connections"),
            Self::Consume => format!("raw consume, no database, {connections} connections"),
            Self::Database => format!("raw database, no broker, {connections} connections"),
            Self::Credits => format!("Semel, plain credits, batch {batch}, {connections} lanes"),
            Self::Book => format!("Semel, the Book, batch {batch}, {connections} lanes"),
        }
    }

    fn work(self, works: &Works) -> &Arc<Work> {
        match self {
            Self::Naive | Self::NaiveBook => &works.few,
            Self::Book => &works.wallet,
            Self::Expert | Self::Consume | Self::Database | Self::Credits => &works.plain,
        }
    }
}

/// The messages.
pub(crate) struct Works {
    pub(crate) plain: Arc<Work>,
    pub(crate) wallet: Arc<Work>,
    /// Plain ones for the naive consumer.
    pub(crate) few: Arc<Work>,
}

/// How large the transactions are, and on how many connections (lanes) they run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) batch: usize,
    pub(crate) connections: usize,
}

/// One broker's contest.
pub(crate) struct Contest<'a> {
    pub(crate) broker: Broker,
    pub(crate) ground: &'a Ground,
    pub(crate) works: &'a Works,
    pub(crate) size: Size,
    /// Topics, by the first file of their work: a topic can be read again.
    topics: BTreeMap<String, Stock>,
}

/// One line of the table.
pub(crate) struct Line {
    pub(crate) contestant: Contestant,
    pub(crate) rounds: Rounds,
}

impl<'a> Contest<'a> {
    pub(crate) const fn new(
        broker: Broker,
        ground: &'a Ground,
        works: &'a Works,
        size: Size,
    ) -> Self {
        Self {
            broker,
            ground,
            works,
            size,
            topics: BTreeMap::new(),
        }
    }

    /// Lets each run, `repeat` rounds of all.
    pub(crate) async fn run(mut self, lines: &mut [Line], repeat: usize) -> Result<(), Error> {
        for _ in 0..repeat {
            for line in &mut *lines {
                let taken = self.one(line.contestant).await?;
                line.rounds.0.push(taken);
            }
        }
        for topic in self.topics.into_values() {
            topic.drop_it().await?;
        }
        Ok(())
    }

    async fn one(&mut self, contestant: Contestant) -> Result<Taken, Error> {
        let work = contestant.work(self.works).clone();
        if contestant == Contestant::Database {
            let raw = contest::Contestant::Raw {
                connections: self.size.connections,
                batch: self.size.batch,
            };
            return self.ground.run(raw, &work).await;
        }
        let stock = self.stock(&work).await?;
        let place = Place::make(&self.ground.url, self.ground.accounts).await?;
        let taken = self.on(&place, &stock, contestant, &work).await?;
        place.drop_it().await?;
        if self.broker == Broker::Rabbit {
            let left = stock.depth().await?;
            if left > 0 {
                return Err(format!("{left} messages came back to the queue").into());
            }
            stock.drop_it().await?;
        }
        Ok(taken)
    }

    async fn stock(&mut self, work: &Work) -> Result<Stock, Error> {
        if let Some(topic) = self.topics.get(&work.files[0]) {
            return Ok(topic.clone());
        }
        let stock = Stock::make(self.broker).await?;
        stock.fill(work).await?;
        if self.broker == Broker::Kafka {
            self.topics.insert(work.files[0].clone(), stock.clone());
        }
        Ok(stock)
    }

    async fn on(
        &self,
        place: &Place,
        stock: &Stock,
        contestant: Contestant,
        work: &Work,
    ) -> Result<Taken, Error> {
        let room = u16::try_from(2 * self.size.batch)?;
        let watch = contest::watch(place).await?;
        match contestant {
            Contestant::Naive => {
                let feeds =
                    feed::open(stock, NAIVE_CONNECTIONS, work.count, NAIVE_PREFETCH).await?;
                let pool = place.pool(u32::try_from(NAIVE_CONNECTIONS)?).await?;
                rivals::naive(feeds, pool).await?;
            }
            Contestant::NaiveBook => {
                drop(self.wallet(place, work).await?);
                naive_book::open_banks(place, NAIVE_CONNECTIONS).await?;
                let watch = contest::watch(place).await?;
                let feeds =
                    feed::open(stock, NAIVE_CONNECTIONS, work.count, NAIVE_PREFETCH).await?;
                rivals::naive_book(feeds, place).await?;
                let taken = watch.stop(work.count);
                book::check(place, work, &naive_book::NAMES).await?;
                return Ok(taken);
            }
            Contestant::Expert => {
                let feeds = feed::open(stock, self.size.connections, work.count, room).await?;
                rivals::expert(feeds, place, self.size.batch).await?;
            }
            Contestant::Consume => {
                let feeds = feed::open(stock, self.size.connections, work.count, room).await?;
                rivals::consume(feeds, self.size.batch).await?;
                return Ok(watch.stop(work.count));
            }
            Contestant::Credits => return self.credits(place, stock, work).await,
            Contestant::Book => return self.book(place, stock, work).await,
            Contestant::Database => return Err("it has no broker".into()),
        }
        let taken = watch.stop(work.count);
        place.check(work, &RIVALS).await?;
        Ok(taken)
    }

    fn pace(&self, by: Spread) -> Result<Pace, Error> {
        Ok(Pace {
            lanes: u16::try_from(self.size.connections)?,
            batch: self.size.batch,
            again: false,
            by,
        })
    }

    async fn credits(&self, place: &Place, stock: &Stock, work: &Work) -> Result<Taken, Error> {
        let ledger = book::ledger(place).await?;
        let handler = Credits::new(Width::Bits64, Balances::Deltas);
        let names = handler.names();
        let handler = (handler, self.pace(Spread::Partition)?);
        let taken = consumer::drain(place, &ledger, stock, handler, work).await?;
        place.check(work, &names).await?;
        Ok(taken)
    }

    /// The wallet's tables, with the bank and the players opened.
    async fn wallet(&self, place: &Place, work: &Work) -> Result<Arc<PostgresLedger>, Error> {
        let ledger = book::ledger(place).await?;
        let accounts = ops::write_accounts(&work.folder, self.ground.accounts)?;
        book::open_accounts(&ledger, &work.folder, accounts).await?;
        Ok(ledger)
    }

    async fn book(&self, place: &Place, stock: &Stock, work: &Work) -> Result<Taken, Error> {
        let ledger = self.wallet(place, work).await?;
        // A topic's partitions are by player already.
        let by = match self.broker {
            Broker::Kafka => Spread::Partition,
            Broker::Rabbit => PLAYER,
        };
        let handler = (book::wallet()?, self.pace(by)?);
        let taken = consumer::drain(place, &ledger, stock, handler, work).await?;
        book::check(place, work, &book::NAMES).await?;
        Ok(taken)
    }
}
