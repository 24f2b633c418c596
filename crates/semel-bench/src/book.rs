//! Semel's own run: any handler over the work's files, and the wallet's Book on transfers from the bank to the
//! players, with double entry, replies, versions and amounts of 128 bits.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use semel::staged::{Staged, StagedHandler, handler};
use semel::{Consumer, Deaf, LaneRule, Observer, Outcome, Pointer, Settings, Summary};
use semel_file::{FileSource, Start};
use semel_postgres::{Extension, Options, PostgresLedger};
use semel_wallet::{Config, Wallet, migrations};

use crate::ops::Work;
use crate::tables::{Error, Names, Place};

/// Where the Book's rows are: accounts `p0`, `p1`, … by number; the bank is left to [`check`].
pub const NAMES: Names = Names {
    key: "(SELECT key FROM semel_ledger WHERE consumer = (SELECT id FROM semel_consumer WHERE name = 'bench')) AS keys",
    journal: "wallet_operation WHERE op = 'transfer'",
    balance: "wallet_account WHERE id LIKE 'p%'",
    account: "substr(id, 2)::bigint",
    amount: "posted",
};

/// How a consumer runs.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Lanes.
    pub lanes: u16,
    /// Messages a unit.
    pub batch: usize,
    /// From the first line, whatever the ledger has: everything is a copy then.
    pub again: bool,
    /// How messages are spread over lanes.
    pub by: Spread,
}

/// What messages of one lane have in common.
#[derive(Debug, Clone, Copy)]
pub enum Spread {
    /// Their partition.
    Partition,
    /// A field, by its JSON pointer.
    Field(&'static str),
    /// What the handler says.
    Handler,
}

/// One player's operations in one lane: two lanes never wait for the same account but the bank.
pub const PLAYER: Spread = Spread::Field("/credit");

impl Pace {
    fn settings(self) -> Result<Settings, Error> {
        let lane = match self.by {
            Spread::Partition => LaneRule::Partition,
            Spread::Handler => LaneRule::Handler,
            Spread::Field(field) => {
                LaneRule::Pointer(Pointer::parse(field).map_err(|_| "not a JSON pointer")?)
            }
        };
        Ok(Settings {
            lanes: self.lanes,
            lane,
            batch_count_max: self.batch,
            ..Settings::default()
        })
    }
}

/// A consumer over the rivals' database.
pub type BenchConsumer<S> = Consumer<PostgresLedger, StagedHandler<S>>;

/// Opens the ledger in the run's schema, with the wallet's tables.
///
/// # Errors
/// The ledger's.
pub async fn ledger(place: &Place) -> Result<Arc<PostgresLedger>, Error> {
    let wallet = Extension {
        name: migrations::PART,
        migrations: migrations::POSTGRES,
    };
    let options = Options {
        schema: place.schema.to_owned(),
        extensions: vec![wallet],
        ..Options::new(place.url.as_str())
    };
    Ok(Arc::new(
        PostgresLedger::open(options)
            .await
            .map_err(|fault| fault.to_string())?,
    ))
}

/// Runs a staged handler over files until their end.
///
/// # Errors
/// The consumer's, or an outcome other than applied and duplicate.
pub async fn run<S: Staged>(
    ledger: &Arc<PostgresLedger>,
    consumer: &str,
    staged: S,
    (folder, files): (&Path, &[String]),
    pace: Pace,
) -> Result<Summary, Error> {
    let deaf = Arc::new(Deaf);
    let consumer = enroll(ledger, consumer, staged, &["files"], pace, deaf).await?;
    let start = if pace.again {
        Start::First
    } else {
        Start::Resume
    };
    let paths = semel_file::Settings {
        start,
        ..semel_file::Settings::new(folder, files)
    };
    let source = FileSource::open(paths, consumer.positions("files"))
        .await
        .map_err(|fault| fault.to_string())?;
    let consumer = consumer.attach("files", Arc::new(source));
    finish(consumer, std::future::pending()).await
}

/// Makes a consumer, for sources that are attached to it then.
///
/// # Errors
/// The ledger's.
pub async fn enroll<S: Staged>(
    ledger: &Arc<PostgresLedger>,
    consumer: &str,
    staged: S,
    sources: &[&str],
    pace: Pace,
    observer: Arc<dyn Observer>,
) -> Result<BenchConsumer<S>, Error> {
    let handler = Arc::new(handler(staged));
    let consumer = Consumer::builder(consumer, ledger.clone(), handler)
        .sources(sources.iter().copied())
        .settings(pace.settings()?)
        .observer(observer)
        .enroll()
        .await
        .map_err(|fault| fault.to_string())?;
    Ok(consumer)
}

/// Runs a consumer until its sources end, or until it is told to.
///
/// # Errors
/// The consumer's, or an outcome other than applied and duplicate.
pub async fn finish<S: Staged>(
    consumer: BenchConsumer<S>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<Summary, Error> {
    let summary = consumer
        .run(shutdown)
        .await
        .map_err(|fault| fault.to_string())?;
    let strange = summary
        .outcomes
        .keys()
        .any(|outcome| !matches!(outcome, Outcome::Applied | Outcome::Duplicate));
    if strange {
        Err(format!(
            "a benchmark has plain outcomes only: {:?}",
            summary.outcomes
        )
        .into())
    } else {
        Ok(summary)
    }
}

/// A wallet with one asset.
///
/// # Errors
/// Never: the config is well formed.
pub fn wallet() -> Result<Wallet, Error> {
    Ok(Wallet::new(Config::new([("EUR", 2)])?))
}

/// Opens the bank and the players, by a consumer of its own.
///
/// # Errors
/// As [`run`].
pub async fn open_accounts(
    ledger: &Arc<PostgresLedger>,
    folder: &Path,
    file: String,
) -> Result<(), Error> {
    let pace = Pace {
        lanes: 1,
        batch: 1_000,
        again: false,
        by: Spread::Partition,
    };
    run(ledger, "bench-accounts", wallet()?, (folder, &[file]), pace)
        .await
        .map(drop)
}

/// Checks the Book: what [`Place::check`] checks, two entries an operation, and a bank that owes every cent.
///
/// # Errors
/// What differs.
pub async fn check(place: &Place, work: &Work, names: &Names) -> Result<(), Error> {
    place.check(work, names).await?;
    let mut connection = place.connect().await?;
    let (entries, sum, moved): (i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM wallet_entry), (SELECT sum(posted)::bigint FROM wallet_account),
                (SELECT sum(amount)::bigint FROM wallet_entry)",
    )
    .fetch_one(&mut connection)
    .await?;
    let wanted = 2 * i64::try_from(work.distinct)?;
    if (entries, sum, moved) == (wanted, 0, 0) {
        Ok(())
    } else {
        Err(
            format!("{entries} entries (not {wanted}) of sum {moved}, accounts of sum {sum}")
                .into(),
        )
    }
}
