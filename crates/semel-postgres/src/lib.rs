//! The idempotency ledger on PostgreSQL 13 and later, and the embedded queue beside it.
//!
//! One connection a lane and no pool: a unit of work is bound to one backend from its fence to its commit.
//! Errors are judged by SQLSTATE and nothing else. What this crate never does: tell a commit that may have
//! been lost as one that was not, read a message's text to find out what happened, or end a session that
//! does not hold the very row it waits for.
//!
//! `schema.sql` beside this crate is the contract with other languages, `grants.sql` the least rights of the
//! role that runs consumers.

mod claim;
mod dress;
mod fault;
mod ledger;
mod migrate;
mod numeric;
mod operators;
mod options;
mod pooler;
mod query;
mod queue;
mod record;
mod resolve;
mod rows;
mod session;
mod unit;
mod value;

pub use fault::classify;
pub use ledger::{PostgresLane, PostgresLedger};
pub use options::{Options, Pooler};
pub use pooler::UnknownPooler;
pub use queue::{PostgresQueue, QueueOptions};
pub use semel_sql::{Extension, Migrated, Told};
pub use unit::PostgresUnit;

/// The transaction that a per-message handler borrows.
pub type Tx<'t> = semel_sql::Tx<'t, sqlx::Postgres>;

/// A statement of this crate, from its file.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/sql/",
            $name,
            ".sql"
        ))
    };
}
use sql;
