//! `[ledger]`: the database that holds the keys beside the business rows.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Secret;

/// The database that holds the idempotency ledger, in the same database as the effects.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ledger {
    /// The database: `sqlite:PATH` (a missing file is created) or `postgres://USER:PASSWORD@HOST/DATABASE`.
    pub(crate) url: Secret,
    /// PostgreSQL: the schema that holds Semel's tables and the handler's.
    #[serde(default = "public")]
    #[schemars(length(min = 1))]
    pub(crate) schema: String,
    /// PostgreSQL: what is between Semel and the server. Semel refuses to work behind a pooler in transaction mode that this
    /// does not tell it of.
    #[serde(default)]
    pub(crate) pooler: Pooler,
    /// Does `run` bring an empty or older store up to date by itself? If not, `semel migrate` has to.
    #[serde(default = "yes")]
    pub(crate) migrate: bool,
    /// How long opening a connection may take.
    #[serde(default = "connect_timeout_ms")]
    #[schemars(range(min = 1))]
    pub(crate) connect_timeout_ms: u64,
    /// How long one statement may run before the server ends it (PostgreSQL `statement_timeout`).
    #[serde(default = "statement_timeout_ms")]
    #[schemars(range(min = 1))]
    pub(crate) statement_timeout_ms: u64,
    /// How long a statement may wait for a lock (PostgreSQL `lock_timeout`, SQLite `busy_timeout`).
    #[serde(default = "lock_timeout_ms")]
    #[schemars(range(min = 1))]
    pub(crate) lock_timeout_ms: u64,
    /// How long a transaction may sit idle before the server ends it (PostgreSQL
    /// `idle_in_transaction_session_timeout`).
    #[serde(default = "idle_in_transaction_timeout_ms")]
    #[schemars(range(min = 1))]
    pub(crate) idle_in_transaction_timeout_ms: u64,
}

/// A pooler of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pooler {
    /// The server itself, or a pooler that gives each connection a session of its own.
    #[default]
    None,
    /// A pooler that lends its sessions for one transaction at a time, such as PgBouncer with `pool_mode = transaction`.
    Transaction,
}

impl From<Pooler> for semel_postgres::Pooler {
    fn from(pooler: Pooler) -> Self {
        match pooler {
            Pooler::None => Self::None,
            Pooler::Transaction => Self::Transaction,
        }
    }
}

fn public() -> String {
    "public".to_owned()
}

fn yes() -> bool {
    true
}

/// Longer than a TLS handshake across an ocean, short enough to notice a dead address.
fn connect_timeout_ms() -> u64 {
    10_000
}

/// A unit's statements take milliseconds; this one is stuck.
fn statement_timeout_ms() -> u64 {
    30_000
}

/// Waiting longer than this for a neighbour means to go back, make room and try again.
fn lock_timeout_ms() -> u64 {
    5_000
}

/// The engine never thinks this long between two statements; a client that does has gone.
fn idle_in_transaction_timeout_ms() -> u64 {
    30_000
}
