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
