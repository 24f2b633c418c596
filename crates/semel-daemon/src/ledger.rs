//! Opens the ledger that the config names, and hands it to code that is generic over ledgers.

use std::path::Path;

use semel_core::Fault;
use semel_core::ledger::{ConsumerId, SourceId};
use semel_postgres::PostgresLedger;
use semel_sqlite::SqliteLedger;

use crate::config::{Ledger as Settings, Loaded, Secret, masked};
use crate::dialect::Dialect;
use crate::exit::{Exit, Failure};
use crate::wallet;

/// A ledger of any dialect.
#[derive(Debug, Clone)]
pub(crate) enum Ledger {
    Sqlite(SqliteLedger),
    Postgres(PostgresLedger),
}

/// Runs an expression with `$ledger` bound to the concrete ledger: written once, compiled for each.
macro_rules! on_ledger {
    ($any:expr, $ledger:ident => $run:expr) => {
        match $any {
            $crate::ledger::Ledger::Sqlite($ledger) => $run,
            $crate::ledger::Ledger::Postgres($ledger) => $run,
        }
    };
}
pub(crate) use on_ledger;

/// What is to be done with the tables when a ledger is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tables {
    /// Brought up to date, unless the config says that `semel migrate` does it. A missing SQLite file is made.
    Ready,
    /// Read as they are. Nothing is made.
    AsTheyAre,
}

/// Where a database is: a URL with its secrets, for no eyes.
pub(crate) struct Place {
    pub(crate) dialect: Dialect,
    url: String,
}

impl Place {
    /// Of a URL in the config.
    ///
    /// # Errors
    ///
    /// The secret cannot be had, or no dialect has such a URL.
    pub(crate) fn of(url: &Secret, base: &Path) -> Result<Self, Failure> {
        let url = url.reveal(base).map_err(Failure::usage)?;
        let dialect = Dialect::checked(&url).map_err(Failure::usage)?;
        let url = match Dialect::sqlite_file(&url, base) {
            Some(file) => format!("sqlite:{}", file.display()),
            None => url,
        };
        Ok(Self { dialect, url })
    }

    /// A SQLite file.
    pub(crate) fn sqlite_at(file: &Path) -> Self {
        Self {
            dialect: Dialect::Sqlite,
            url: format!("sqlite:{}", file.display()),
        }
    }

    pub(crate) fn sqlite_is_missing(&self) -> bool {
        let file = Dialect::sqlite_file(&self.url, Path::new(""));
        self.dialect == Dialect::Sqlite && file.is_some_and(|file| !file.exists())
    }

    /// As SQLite's crate takes it.
    pub(crate) fn sqlite(&self, settings: &Settings, tables: Tables) -> semel_sqlite::Options {
        let mut options = semel_sqlite::Options::new(&self.url);
        options.create = tables == Tables::Ready;
        options.migrate = tables == Tables::Ready && settings.migrate;
        options.extensions = wallet::tables(Dialect::Sqlite);
        options.busy_timeout_ms = u32::try_from(settings.lock_timeout_ms).unwrap_or(u32::MAX);
        options
    }

    /// As PostgreSQL's crate takes it.
    pub(crate) fn postgres(&self, settings: &Settings, tables: Tables) -> semel_postgres::Options {
        let mut options = semel_postgres::Options::new(&self.url);
        options.schema.clone_from(&settings.schema);
        options.pooler = settings.pooler.into();
        options.migrate = tables == Tables::Ready && settings.migrate;
        options.extensions = wallet::tables(Dialect::Postgres);
        options.connect_timeout_ms = settings.connect_timeout_ms;
        options.statement_timeout_ms = settings.statement_timeout_ms;
        options.lock_timeout_ms = settings.lock_timeout_ms;
        options.idle_timeout_ms = settings.idle_in_transaction_timeout_ms;
        options
    }
}

/// The place of the config's ledger.
///
/// # Errors
///
/// As [`Place::of`].
pub(crate) fn place(loaded: &Loaded) -> Result<Place, Failure> {
    let ledger = &loaded.config.ledger;
    let place = Place::of(&ledger.url, &loaded.base)?;
    if place.dialect == Dialect::Postgres {
        let options = place.postgres(ledger, Tables::AsTheyAre);
        options.check().map_err(Failure::usage)?;
    }
    Ok(place)
}

/// Opens the ledger.
///
/// # Errors
///
/// It cannot be reached, or its tables are not those of this program.
pub(crate) async fn open(loaded: &Loaded, tables: Tables) -> Result<Ledger, Failure> {
    let place = place(loaded)?;
    if tables == Tables::AsTheyAre && place.sqlite_is_missing() {
        let message = format!(
            "there is no ledger at `{}` yet: `semel run` or `semel migrate` makes it",
            masked(&place.url)
        );
        return Err(Failure::new(Exit::Away, message));
    }
    connect(&place, &loaded.config.ledger, tables)
        .await
        .map_err(|fault| Failure::fault("the ledger cannot be opened", &fault))
}

/// Ledgers that can be told to forget a position.
pub(crate) trait Forget: Send + Sync {
    /// Forgets how far a partition was read.
    fn forget(
        &self,
        consumer: ConsumerId,
        source: SourceId,
        partition: &str,
    ) -> impl Future<Output = Result<(), Fault>> + Send;
}

impl Forget for SqliteLedger {
    async fn forget(&self, of: ConsumerId, source: SourceId, partition: &str) -> Result<(), Fault> {
        self.forget_position(of, source, partition).await
    }
}

impl Forget for PostgresLedger {
    async fn forget(&self, of: ConsumerId, source: SourceId, partition: &str) -> Result<(), Fault> {
        self.forget_position(of, source, partition).await
    }
}

/// Opens a ledger at a place.
///
/// # Errors
///
/// The ledger's own.
pub(crate) async fn connect(
    place: &Place,
    settings: &Settings,
    tables: Tables,
) -> Result<Ledger, Fault> {
    Ok(match place.dialect {
        Dialect::Sqlite => {
            Ledger::Sqlite(SqliteLedger::open(place.sqlite(settings, tables)).await?)
        }
        Dialect::Postgres => {
            Ledger::Postgres(PostgresLedger::open(place.postgres(settings, tables)).await?)
        }
    })
}
