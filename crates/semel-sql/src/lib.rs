//! What the SQL ledgers share: the transaction that a handler borrows, and the handlers that borrow it.
//!
//! A [`Tx`] runs any SQL of the user inside the open unit of work, and keeps the unit's promises while it
//! does: it has no commit, refuses transaction control text, and after the first error it runs nothing more,
//! so that a swallowed error can never be committed around (TRAPS T01, T07, T17, T64). No dialect is known
//! here; each ledger crate brings its own classification of errors.

mod apart;
mod handler;
mod lend;
mod letter;
mod schema;
mod text;
mod told;
mod tx;
mod watch;

pub use apart::{Apart, Names};
pub use handler::{Bound, PerMessage, bind};
pub use lend::Lend;
pub use letter::letter_id;
pub use schema::{Extension, Migrated, OWN_PART, migration_name, migration_stem};
pub use told::Told;
pub use tx::Tx;
pub use watch::Watch;
