//! The contestants, one run each: a schema of its own, the work, the clock, the exact check.

use std::path::Path;
use std::sync::Arc;

use semel_postgres::PostgresLedger;

use crate::book::{self, PLAYER, Pace, Spread};
use crate::credits::{Balances, Credits, Width};
use crate::measure::{Taken, Watch};
use crate::ops::Work;
use crate::tables::{Error, Place, RIVALS};
use crate::{expert, naive, naive_book, raw};

/// Who runs, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contestant {
    /// See [`naive`].
    Naive {
        /// Connections.
        connections: usize,
    },
    /// See [`naive_book`].
    NaiveBook {
        /// Connections.
        connections: usize,
    },
    /// See [`expert`].
    Expert {
        /// Connections.
        connections: usize,
        /// Messages a transaction.
        batch: usize,
    },
    /// See [`raw`].
    Raw {
        /// Connections.
        connections: usize,
        /// Messages a transaction.
        batch: usize,
    },
    /// See [`crate::credits`].
    Credits {
        /// Lanes.
        lanes: u16,
        /// Messages a unit.
        batch: usize,
        /// How wide amounts are.
        width: Width,
        /// How balances change.
        balances: Balances,
    },
    /// See [`book`].
    Book {
        /// Lanes.
        lanes: u16,
        /// Messages a unit.
        batch: usize,
    },
}

impl Contestant {
    /// Its line in the table.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Naive { connections } => {
                format!("naive, one transaction a message, {connections} connections")
            }
            Self::NaiveBook { connections } => {
                format!(
                    "naive, the Book's rows, one transaction a message, {connections} connections"
                )
            }
            Self::Expert { connections, batch } => {
                format!("expert's batch {batch}, {connections} connections")
            }
            Self::Raw { connections, batch } => {
                format!("raw, batch {batch}, {connections} connections")
            }
            Self::Credits {
                lanes,
                batch,
                width,
                balances,
            } => {
                let locked = if balances == Balances::Locked {
                    ", locked"
                } else {
                    ""
                };
                let wide = if width == Width::Bits128 {
                    ", 128 bit"
                } else {
                    ""
                };
                format!("Semel, plain credits{locked}{wide}, batch {batch}, {lanes} lanes")
            }
            Self::Book { lanes, batch } => {
                format!("Semel, the Book, batch {batch}, {lanes} lanes by player")
            }
        }
    }

    /// Whether it reads the wallet's lines.
    #[must_use]
    pub const fn is_book(self) -> bool {
        matches!(self, Self::Book { .. })
    }
}

/// What a run needs beside its contestant.
#[derive(Debug, Clone)]
pub struct Ground {
    /// The server.
    pub url: String,
    /// How many accounts there are.
    pub accounts: u64,
}

impl Ground {
    /// One run: the time of the work alone, its end state checked.
    ///
    /// # Errors
    /// What failed or differs.
    pub async fn run(&self, contestant: Contestant, work: &Arc<Work>) -> Result<Taken, Error> {
        let place = Place::make(&self.url, self.accounts).await?;
        let taken = self.on(&place, contestant, work).await?;
        place.drop_it().await?;
        Ok(taken)
    }

    /// The time of a first pass and of a second one over the same messages, which are all copies then.
    ///
    /// # Errors
    /// What failed or differs.
    pub async fn run_twice(
        &self,
        lanes: u16,
        batch: usize,
        work: &Arc<Work>,
    ) -> Result<(Taken, Taken), Error> {
        let place = Place::make(&self.url, self.accounts).await?;
        let contestant = Contestant::Credits {
            lanes,
            batch,
            width: Width::Bits64,
            balances: Balances::Deltas,
        };
        let first = self.on(&place, contestant, work).await?;
        let second = self
            .credits(
                &place,
                work,
                Pace {
                    lanes,
                    batch,
                    again: true,
                    by: Spread::Partition,
                },
                Width::Bits64,
                Balances::Deltas,
            )
            .await?;
        place.drop_it().await?;
        Ok((first, second))
    }

    async fn on(
        &self,
        place: &Place,
        contestant: Contestant,
        work: &Arc<Work>,
    ) -> Result<Taken, Error> {
        match contestant {
            Contestant::Naive { connections } => {
                let messages = naive::messages(work)?;
                let pool = place.pool(u32::try_from(connections)?).await?;
                let watch = watch(place).await?;
                naive::consume(
                    &naive::Store::Postgres(pool),
                    naive::Habits::BEST,
                    connections,
                    messages,
                    Arc::new(naive::Peace),
                )
                .await?;
                let taken = watch.stop(work.count);
                place.check(work, &RIVALS).await?;
                Ok(taken)
            }
            Contestant::NaiveBook { connections } => {
                let messages = naive::messages(work)?;
                drop(self.wallet(place, work).await?);
                naive_book::open_banks(place, connections).await?;
                let watch = watch(place).await?;
                naive_book::consume(place, connections, messages).await?;
                let taken = watch.stop(work.count);
                book::check(place, work, &naive_book::NAMES).await?;
                Ok(taken)
            }
            Contestant::Expert { connections, batch } => {
                let watch = watch(place).await?;
                expert::run(place, work, connections, batch).await?;
                let taken = watch.stop(work.count);
                place.check(work, &RIVALS).await?;
                Ok(taken)
            }
            Contestant::Raw { connections, batch } => {
                let watch = watch(place).await?;
                raw::run(place, work, connections, batch).await?;
                let taken = watch.stop(work.count);
                place.check(work, &RIVALS).await?;
                Ok(taken)
            }
            Contestant::Credits {
                lanes,
                batch,
                width,
                balances,
            } => {
                self.credits(
                    place,
                    work,
                    Pace {
                        lanes,
                        batch,
                        again: false,
                        by: Spread::Partition,
                    },
                    width,
                    balances,
                )
                .await
            }
            Contestant::Book { lanes, batch } => {
                // One player's operations in one lane: two lanes never wait for the same account but the bank.
                self.book(
                    place,
                    work,
                    Pace {
                        lanes,
                        batch,
                        again: false,
                        by: PLAYER,
                    },
                )
                .await
            }
        }
    }

    async fn credits(
        &self,
        place: &Place,
        work: &Arc<Work>,
        pace: Pace,
        width: Width,
        balances: Balances,
    ) -> Result<Taken, Error> {
        let ledger = book::ledger(place).await?;
        let handler = Credits::new(width, balances);
        let names = handler.names();
        let watch = watch(place).await?;
        book::run(&ledger, "bench", handler, (&work.folder, &work.files), pace).await?;
        let taken = watch.stop(work.count);
        place.check(work, &names).await?;
        Ok(taken)
    }

    /// The wallet's tables, with the bank and the players opened.
    async fn wallet(&self, place: &Place, work: &Work) -> Result<Arc<PostgresLedger>, Error> {
        let ledger = book::ledger(place).await?;
        let file = crate::ops::write_accounts(&work.folder, self.accounts)?;
        book::open_accounts(&ledger, &work.folder, file).await?;
        Ok(ledger)
    }

    async fn book(&self, place: &Place, work: &Arc<Work>, pace: Pace) -> Result<Taken, Error> {
        let ledger = self.wallet(place, work).await?;
        let watch = watch(place).await?;
        book::run(
            &ledger,
            "bench",
            book::wallet()?,
            (&work.folder, &work.files),
            pace,
        )
        .await?;
        let taken = watch.stop(work.count);
        book::check(place, work, &book::NAMES).await?;
        Ok(taken)
    }
}

/// Runs plain credits over files whose content nobody checks here, and tells the most memory that took: for a
/// process of its own.
///
/// # Errors
/// What failed.
pub async fn memory(
    url: &str,
    accounts: u64,
    folder: &Path,
    files: &[String],
) -> Result<Option<f64>, Error> {
    let place = Place::make(url, accounts).await?;
    let ledger = book::ledger(&place).await?;
    let handler = Credits::new(Width::Bits64, Balances::Deltas);
    let pace = Pace {
        lanes: 2,
        batch: 1_000,
        again: false,
        by: Spread::Partition,
    };
    book::run(&ledger, "bench", handler, (folder, files), pace).await?;
    place.drop_it().await?;
    Ok(crate::measure::memory_peak_mib("self"))
}

/// Begins a measurement of this process, of the database's server and of the rest.
///
/// # Errors
/// The database's.
pub async fn watch(place: &Place) -> Result<Watch, Error> {
    let mut connection = place.connect().await?;
    let backend: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut connection)
        .await?;
    Ok(Watch::start(u32::try_from(backend).ok()))
}
