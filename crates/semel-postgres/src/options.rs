//! How to reach the database, and the limits that live in the server.

use std::fmt;
use std::str::FromStr;

use semel_core::Fault;
use semel_sql::Extension;
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;

/// What is between the program and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooler {
    /// Nothing that mixes sessions: the server itself, or a pooler that gives each connection a session of its own. The
    /// ledger refuses to open when it finds that this is not so.
    #[default]
    None,
    /// A pooler that lends its sessions for one transaction at a time, such as PgBouncer with `pool_mode = transaction`.
    /// Settings are made anew in each transaction and statements get no names, which costs a unit a further request for each
    /// of its statements.
    Transaction,
}

/// How to reach the database and how long to wait for it. `Debug` never shows the URL, which may hold a
/// password.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database?sslmode=…`.
    pub url: String,
    /// The schema of Semel's tables and, unless qualified, the handler's.
    pub schema: String,
    /// What is between the program and the server.
    pub pooler: Pooler,
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

/// PostgreSQL keeps this much of a name, and cuts the rest off.
const NAME_BYTES_MAX: usize = 63;

/// The parameters that have an effect behind a URL's `?`.
const PARAMETERS: &[&str] = &[
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "options",
];

impl Options {
    /// Defaults behind a URL: the schema `public`, migrated.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: "public".to_owned(),
            pooler: Pooler::None,
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

    /// Whether these can ever work. Opens nothing.
    ///
    /// # Errors
    /// A sentence, which repeats nothing of the URL but the name of a parameter.
    pub fn check(&self) -> Result<(), String> {
        self.driver()?;
        if self.pooler == Pooler::Transaction && self.parameters().any(|name| name == "options") {
            return Err(
                "the URL's parameter `options` would be refused or lost by a pooler in transaction mode; set it for the role \
                 (`ALTER ROLE … SET …`)"
                    .to_owned(),
            );
        }
        let bytes = self.schema.len();
        if bytes == 0 || bytes > NAME_BYTES_MAX {
            return Err(format!(
                "the schema's name has {bytes} bytes; PostgreSQL takes 1 to {NAME_BYTES_MAX} and would cut it in silence"
            ));
        }
        Ok(())
    }

    fn driver(&self) -> Result<PgConnectOptions, String> {
        const FORM: &str = "write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`";
        let rest = self
            .url
            .strip_prefix("postgres://")
            .or_else(|| self.url.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| format!("the URL is none of PostgreSQL; {FORM}"))?;
        if rest.contains('#') {
            return Err("the URL holds a `#`, which would end it; write it as `%23`".to_owned());
        }
        // Before the driver sees them: it would ignore an unknown parameter, and log its value.
        for name in self.parameters() {
            if PARAMETERS.contains(&name) {
                continue;
            }
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            return Err(if name.is_empty() || !name.chars().all(plain) {
                "the URL's part behind `?` is not NAME=VALUE; write a `?` of the password as `%3F`"
                    .to_owned()
            } else {
                format!(
                    "the URL's parameter `{name}` is not known; known are {}",
                    PARAMETERS.join(", ")
                )
            });
        }
        PgConnectOptions::from_str(&self.url).map_err(|_| {
            format!(
                "the URL cannot be read; {FORM}, with what is special in it as `%` and two digits"
            )
        })
    }

    /// The names of what stands behind the URL's `?`; empty where there is no name.
    fn parameters(&self) -> impl Iterator<Item = &str> {
        let query = self.url.split_once('?').map_or("", |(_, query)| query);
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').map_or("", |(name, _)| name))
    }

    /// The driver's form.
    ///
    /// # Errors
    /// `Stop` when the URL is none. The text never repeats the URL.
    pub(crate) fn parse(&self) -> Result<PgConnectOptions, Fault> {
        self.check().map_err(Fault::refused)?;
        let options = self.driver().map_err(Fault::refused)?;
        // A staged handler prepares about six statements a table.
        Ok(options
            .application_name("semel")
            // The server's default is exact since version 12, and poolers refuse to be told.
            .extra_float_digits(None)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_told_and_repeats_no_secret() {
        for url in [
            "postgres:u:hunter2@h/d",
            "mysql://u:hunter2@h/d",
            "postgres://u:hunter2@h:99999/d",
            "postgres://u:hun?ter2@h/d",
            "postgres://u:hun#ter2@h/d",
            "postgres://u@h/d?pasword=hunter2",
            "postgres://u@h/d?hunter2",
            "postgres://u@h/d?sslmode=hunter2",
        ] {
            let told = Options::new(url).check().unwrap_err();
            assert!(
                !told.contains("hun") && !told.contains("ter2"),
                "{url}: {told}"
            );
        }
        let mut options =
            Options::new("postgres://u:p@h:5433/d?sslmode=require&options=-c%20x%3Dy");
        assert_eq!(options.check(), Ok(()));
        options.pooler = Pooler::Transaction;
        assert!(options.check().unwrap_err().contains("`options`"));
    }

    #[test]
    fn a_schema_name_that_the_server_would_cut_is_refused() {
        let mut options = Options::new("postgres://u:p@h/d");
        options.schema = "s".repeat(63);
        assert_eq!(options.check(), Ok(()));
        options.schema = "s".repeat(64);
        assert!(options.check().unwrap_err().contains("64 bytes"));
        options.schema = String::new();
        assert!(options.check().is_err());
    }
}
