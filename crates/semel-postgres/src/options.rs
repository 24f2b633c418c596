//! How to reach the database, and the limits that live in the server.

use std::fmt;
use std::str::FromStr;

use semel_core::Fault;
use semel_sql::Extension;
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;

/// How to reach the database and how long to wait for it. `Debug` never shows the URL, which may hold a
/// password.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database?sslmode=…`.
    pub url: String,
    /// The schema of Semel's tables and, unless qualified, the handler's.
    pub schema: String,
    /// `statement_timeout` of a unit's statements, ms. The server itself exempts a COMMIT from it, so a wait for a
    /// standby is never cut short (TRAPS T34).
    pub statement_timeout_ms: u64,
    /// `lock_timeout`, ms: how long a claim waits for another unit that holds the key.
    pub lock_timeout_ms: u64,
    /// `idle_in_transaction_session_timeout`, ms: how long a handler may think between two statements.
    pub idle_timeout_ms: u64,
    /// How long connecting may take, ms.
    pub connect_timeout_ms: u64,
    /// How long a lost commit is waited for before its silent holder is ended, ms.
    pub resolve_wait_ms: u64,
    /// Runs missing migrations when the ledger is opened. Without it they are a `Stop`.
    pub migrate: bool,
    /// Migrations of handlers' tables.
    pub extensions: Vec<Extension>,
}

impl Options {
    /// Defaults behind a URL: the schema `public`, migrated.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: "public".to_owned(),
            // A batch of thousands takes tens of ms; a cold index a few seconds.
            statement_timeout_ms: 30_000,
            // Longer than a healthy unit, shorter than a user's patience.
            lock_timeout_ms: 5_000,
            idle_timeout_ms: 60_000,
            connect_timeout_ms: 10_000,
            resolve_wait_ms: 1_000,
            migrate: true,
            extensions: Vec::new(),
        }
    }

    /// How long an operator's statement may take in all before its connection is given up, ms.
    pub(crate) const fn call_limit_ms(&self) -> u64 {
        self.connect_timeout_ms
            .saturating_add(self.statement_timeout_ms)
            .saturating_add(5_000)
    }

    /// The driver's form.
    ///
    /// # Errors
    /// `Stop` when the URL is none. The text never repeats the URL.
    pub(crate) fn parse(&self) -> Result<PgConnectOptions, Fault> {
        let scheme = self.url.starts_with("postgres://") || self.url.starts_with("postgresql://");
        let parsed = PgConnectOptions::from_str(&self.url)
            .ok()
            .filter(|_| scheme);
        let options = parsed.ok_or_else(|| {
            Fault::stop(
                "the ledger's URL is not one; write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`",
            )
        })?;
        // A staged handler prepares about six statements a table.
        Ok(options
            .application_name("semel")
            .statement_cache_capacity(512)
            .disable_statement_logging())
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// An SQL identifier, quoted.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
