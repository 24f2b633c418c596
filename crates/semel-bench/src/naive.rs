//! The usual consumer: one transaction a message, a check or a unique key, the work, the ack. What most teams
//! have, and what the traps of the test suite are tried on: an attack that this one survives proves nothing.
//!
//! Over any list of deliveries, on PostgreSQL and SQLite. An [`Attack`] is asked at every [`Step`] and may
//! crash the consumer there, or make it wait.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use semel_core::source::BoxFuture;
use sqlx::{PgPool, SqlitePool};

use crate::ops::{Credit, FILES, Reader, Work};
use crate::tables::Error;

/// How it tells a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Looks for the key, works, then inserts it: two copies at once both find nothing (TRAPS T71).
    CheckThenInsert,
    /// Inserts the key first; a unique key tells.
    UniqueKey,
    /// Remembers the key in a transaction of its own before the work, as with a second store (TRAPS T70).
    RememberFirst,
}

/// When it tells the broker that a message is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// When it has taken the message (automatic acks): at most once.
    OnReceipt,
    /// Behind the commit: at least once.
    AfterCommit,
}

/// What it does with a message when its store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Takes it again, until the store is back.
    Endless,
    /// Tries so many times more, then goes on to the next message (TRAPS T74). With 0 it drops it at once (TRAPS T73).
    Retries(u32),
}

/// Its habits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Habits {
    /// How it tells a copy.
    pub guard: Guard,
    /// When it acks.
    pub ack: Ack,
    /// How long it waits for its store.
    pub patience: Patience,
}

impl Habits {
    /// The best of its kind.
    pub const BEST: Self = Self {
        guard: Guard::UniqueKey,
        ack: Ack::AfterCommit,
        patience: Patience::Endless,
    };
}

/// Where it is with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The delivery was taken.
    Received,
    /// The key was looked for, inserted or remembered, and was new.
    Checked,
    /// The balance and the journal are written, in the open transaction.
    Worked,
    /// The transaction is committed; the ack was not sent yet.
    Committed,
}

/// What an attack does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// Nothing: it goes on.
    None,
    /// The process dies here: an open transaction is rolled back, and what is not acked is delivered again.
    Crash,
    /// The store cannot be reached. At [`Step::Received`] only.
    Away,
}

/// Asked at every step of every delivery. An attack that waits holds the consumer there.
pub trait Attack: Send + Sync {
    /// The consumer is at `step` of the `delivery`th delivery it took (from 0), which is `credit`.
    fn strike(&self, _step: Step, _delivery: usize, _credit: &Credit) -> BoxFuture<'_, Blow> {
        Box::pin(std::future::ready(Blow::None))
    }
}

/// No attack.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peace;

impl Attack for Peace {}

/// Where it keeps its rows: `bench_key`, `bench_balance` and `bench_journal`.
#[derive(Debug, Clone)]
pub enum Store {
    /// PostgreSQL; the tables are found by the search path of its connections.
    Postgres(PgPool),
    /// SQLite; see [`SQLITE`].
    Sqlite(SqlitePool),
}

/// The tables for SQLite.
pub const SQLITE: &str = "
    CREATE TABLE bench_key (consumer INTEGER NOT NULL, key BLOB NOT NULL, PRIMARY KEY (consumer, key)) WITHOUT ROWID;
    CREATE TABLE bench_balance (account INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
    CREATE TABLE bench_journal (id INTEGER PRIMARY KEY, account INTEGER NOT NULL, amount INTEGER NOT NULL, key BLOB NOT NULL)";

/// What it believes to have done: what its own metric would show (TRAPS T90).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Deliveries it saw committed.
    pub applied: u64,
    /// Deliveries it took for copies.
    pub duplicates: u64,
    /// Crashes and errors; each delivery that was not acked came again.
    pub failures: u64,
}

/// Deliveries of a broker that delivers again what is not acked.
struct Broker {
    waiting: VecDeque<Credit>,
    taken: usize,
}

/// What a consumer does with one delivery.
enum Done {
    Applied,
    Duplicate,
    Crashed,
}

/// Consumes `deliveries`, in their order, with `workers` at once, until all are acked.
///
/// # Errors
/// The database's, when it is no constraint and not busy: the usual consumer gives up.
pub async fn consume(
    store: &Store,
    habits: Habits,
    workers: usize,
    deliveries: impl IntoIterator<Item = Credit>,
    attack: Arc<dyn Attack>,
) -> Result<Tally, Error> {
    let broker = Broker {
        waiting: deliveries.into_iter().collect(),
        taken: 0,
    };
    let broker = Arc::new(Mutex::new(broker));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..workers {
        tasks.spawn(work(store.clone(), habits, broker.clone(), attack.clone()));
    }
    let mut tally = Tally::default();
    while let Some(ended) = tasks.join_next().await {
        let one = ended??;
        tally.applied += one.applied;
        tally.duplicates += one.duplicates;
        tally.failures += one.failures;
    }
    Ok(tally)
}

/// Errors in a row before it gives up.
const FAILURES_MAX: u32 = 1_000;

async fn work(
    store: Store,
    habits: Habits,
    broker: Arc<Mutex<Broker>>,
    attack: Arc<dyn Attack>,
) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    let mut in_a_row = 0;
    loop {
        let taken = {
            let mut broker = broker.lock().unwrap_or_else(PoisonError::into_inner);
            let number = broker.taken;
            broker.waiting.pop_front().map(|credit| {
                broker.taken += 1;
                (number, credit)
            })
        };
        let Some((number, credit)) = taken else {
            return Ok(tally);
        };
        let done = match &store {
            Store::Postgres(pool) => postgres(pool, habits.guard, number, &credit, &*attack).await,
            Store::Sqlite(pool) => sqlite(pool, habits.guard, number, &credit, &*attack).await,
        };
        in_a_row = if done.is_err() { in_a_row + 1 } else { 0 };
        match done {
            Ok(Done::Applied) => tally.applied += 1,
            Ok(Done::Duplicate) => tally.duplicates += 1,
            Err(error) if in_a_row == FAILURES_MAX => return Err(error.into()),
            Err(_) if matches!(habits.patience, Patience::Retries(most) if in_a_row > most) => {
                tally.failures += 1;
                in_a_row = 0;
            }
            Ok(Done::Crashed) | Err(_) => {
                tally.failures += 1;
                if habits.ack == Ack::AfterCommit {
                    broker
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .waiting
                        .push_front(credit);
                }
            }
        }
    }
}

/// The consumer itself, once for each dialect: sqlx has one type of pool for each.
macro_rules! consumer {
    ($name:ident, $pool:ty) => {
        async fn $name(
            pool: &$pool,
            guard: Guard,
            number: usize,
            credit: &Credit,
            attack: &dyn Attack,
        ) -> Result<Done, sqlx::Error> {
            const FIND: &str = "SELECT 1 FROM bench_key WHERE consumer = 1 AND key = $1";
            const INSERT: &str =
                "INSERT INTO bench_key (consumer, key) VALUES (1, $1) ON CONFLICT DO NOTHING";
            match attack.strike(Step::Received, number, credit).await {
                Blow::None => {}
                Blow::Crash => return Ok(Done::Crashed),
                Blow::Away => return Err(sqlx::Error::PoolTimedOut),
            }
            if guard == Guard::RememberFirst {
                let new = sqlx::query(INSERT)
                    .bind(credit.id)
                    .execute(pool)
                    .await?
                    .rows_affected();
                if new == 0 {
                    return Ok(Done::Duplicate);
                }
            }
            let mut tx = pool.begin().await?;
            match guard {
                Guard::RememberFirst => {}
                Guard::CheckThenInsert => {
                    if sqlx::query(FIND)
                        .bind(credit.id)
                        .fetch_optional(&mut *tx)
                        .await?
                        .is_some()
                    {
                        return Ok(Done::Duplicate);
                    }
                }
                Guard::UniqueKey => {
                    let new = sqlx::query(INSERT)
                        .bind(credit.id)
                        .execute(&mut *tx)
                        .await?
                        .rows_affected();
                    if new == 0 {
                        tx.commit().await?;
                        return Ok(Done::Duplicate);
                    }
                }
            }
            if attack.strike(Step::Checked, number, credit).await == Blow::Crash {
                return Ok(Done::Crashed);
            }
            sqlx::query("UPDATE bench_balance SET balance = balance + $2 WHERE account = $1")
                .bind(credit.account)
                .bind(credit.amount)
                .execute(&mut *tx)
                .await?;
            sqlx::query("INSERT INTO bench_journal (account, amount, key) VALUES ($1, $2, $3)")
                .bind(credit.account)
                .bind(credit.amount)
                .bind(credit.id)
                .execute(&mut *tx)
                .await?;
            if guard == Guard::CheckThenInsert {
                // The usual code has no unique key, or takes its violation for success.
                sqlx::query(INSERT)
                    .bind(credit.id)
                    .execute(&mut *tx)
                    .await?;
            }
            if attack.strike(Step::Worked, number, credit).await == Blow::Crash {
                return Ok(Done::Crashed);
            }
            tx.commit().await?;
            match attack.strike(Step::Committed, number, credit).await {
                Blow::None | Blow::Away => Ok(Done::Applied),
                Blow::Crash => Ok(Done::Crashed),
            }
        }
    };
}

consumer!(postgres, PgPool);
consumer!(sqlite, SqlitePool);

/// One delivery of a real broker, in a transaction of its own, by the best habits: the ack is the caller's.
///
/// # Errors
/// The database's.
pub async fn one(pool: &PgPool, credit: &Credit) -> Result<(), sqlx::Error> {
    postgres(pool, Habits::BEST.guard, 0, credit, &Peace)
        .await
        .map(drop)
}

/// The rows it left, for an oracle: key rows, journal rows, the sum of the balances.
///
/// # Errors
/// The database's.
pub async fn left(store: &Store) -> Result<(i64, i64, i64), Error> {
    const LEFT: &str =
        "SELECT (SELECT count(*) FROM bench_key), (SELECT count(*) FROM bench_journal),
        (SELECT CAST(coalesce(sum(balance), 0) AS bigint) FROM bench_balance)";
    Ok(match store {
        Store::Postgres(pool) => sqlx::query_as(LEFT).fetch_one(pool).await?,
        Store::Sqlite(pool) => sqlx::query_as(LEFT).fetch_one(pool).await?,
    })
}

/// All messages of the work, file by file.
///
/// # Errors
/// The file system's, or a line that is no credit.
pub fn messages(work: &Work) -> std::io::Result<Vec<Credit>> {
    let mut messages = Vec::new();
    for file in 0..FILES {
        messages.extend(Reader::open(work, file)?.batch(usize::MAX)?);
    }
    Ok(messages)
}
