//! What users of Semel depend on: a [`Consumer`] pairs sources, a ledger and a handler, and applies each
//! message of an at-least-once broker exactly once in effect.

mod binding;
mod consumer;
mod flight;
pub mod handler;
mod intake;
mod known;
mod lane;
mod observe;
mod per_message;
mod position;
mod settings;
mod shared;
pub mod staged;
#[cfg(test)]
mod toy;
mod unit;

pub use binding::{Rules, rules_hash};
pub use consumer::{Builder, Consumer, Due, INTERNAL, LedgerPositions, Sweeper};
pub use handler::{Bound, Fresh, Handler, Said};
pub use observe::{Cause, Deaf, Ended, Observer, State, Summary, UnitDone};
pub use per_message::{PerMessageHandler, per_message};
pub use semel_core::*;
#[cfg(feature = "file")]
pub use semel_file as file;
#[cfg(feature = "postgres")]
pub use semel_postgres as postgres;
pub use semel_sql::{Extension, Lend, PerMessage, Tx, bind};
#[cfg(feature = "sqlite")]
pub use semel_sqlite as sqlite;
pub use settings::{Dice, LaneRule, Settings};

/// The code in the README compiles and runs.
#[cfg(all(doctest, feature = "sqlite", feature = "file"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
