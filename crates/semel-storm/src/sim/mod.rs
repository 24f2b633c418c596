//! A database and a broker in memory, true to what the real ones were measured to do.
//!
//! Deterministic on a single-threaded runtime: ordered maps, no wall clock, and chance only from
//! [`Dice`](crate::Dice).

mod ledger;
mod pause;
mod rows;
mod source;
mod store;
mod unit;

pub use ledger::{LedgerRow, LetterRow, SightingRow, SimLane, SimLedger};
pub use source::{SimSource, SourceFaults};
pub use store::Faults;
pub use unit::SimUnit;
