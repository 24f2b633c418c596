//! The reference domain of Semel: a double-entry Book with holds, and game Rounds. Money is moved by
//! operations on the wire (`docs/reference/wallet-operations.schema.json`, codes in
//! `docs/reference/wallet-codes.md`), each exactly once in effect.
//!
//! The core is pure: [`Work`] is what a message says, `decide` what the rows make of it, and the [`Model`]
//! holds the rows in memory. [`Wallet`] is the same core as a staged handler over a database. No clock, no
//! I/O and no SQL is in the core; statements live in `sql/`, one file each, per dialect.

mod amount;
mod books;
pub mod code;
mod config;
mod decide;
mod expire;
mod handler;
pub mod migrations;
mod model;
mod op;
mod query;
mod reply;
pub mod row;
mod scales;
pub mod schema;
mod sql;
mod sweep;
#[cfg(feature = "testing")]
pub mod vectors;
mod work;
#[cfg(feature = "testing")]
pub mod workload;

pub use config::{Asset, BadConfig, Config, DuplicateReply, LateWin, SCALE_MAX};
pub use expire::Expired;
pub use handler::Wallet;
pub use model::Model;
pub use op::{Dead, LEGS_MAX, Leg, Move, Named, Operation, Quantity, Verb, round_key};
pub use query::{
    Balance, Check, Direction, LegView, Line, OperationView, Reader, RoundView, StakeView, WinView,
};
pub use reply::{Missing, Reply};
pub use scales::register_scales;
pub use sql::Dialect;
pub use sweep::Sweep;
pub use work::Work;
