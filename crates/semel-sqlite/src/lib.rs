//! The idempotency ledger on SQLite, and the embedded queue: the whole product with no server.
//!
//! One connection a lane, one writer a file: the lanes of a process queue for a file's write lock in order,
//! other processes wait by the busy timeout. Every unit begins with `BEGIN IMMEDIATE`, in WAL mode with
//! `synchronous = FULL` and foreign keys on, all of it checked. Errors are judged by result code and nothing
//! else. What this crate never does: upgrade a read to a write, retry a statement behind the engine's back, or
//! tell a commit that may be lost as one that was not.
//!
//! `schema.sql` beside this crate is the contract with other languages.

mod bulk;
#[cfg(test)]
mod disk;
mod fault;
mod ledger;
mod link;
mod migrate;
mod options;
#[cfg(test)]
mod plans;
mod query;
mod queue;
mod record;
mod rows;
mod store;
mod unit;
mod value;

pub use fault::classify;
pub use ledger::{SqliteLane, SqliteLedger};
pub use options::Options;
pub use queue::{MESSAGE_BYTES_MAX, QueueOptions, SqliteQueue};
pub use semel_sql::{Extension, Migrated};
pub use unit::SqliteUnit;

/// The transaction that a per-message handler borrows.
pub type Tx<'t> = semel_sql::Tx<'t, sqlx::Sqlite>;

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
