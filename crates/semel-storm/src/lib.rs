//! The storm: faults made on purpose, and the laws that must hold in them.
//!
//! It stands on `semel-core` alone, so that third parties can certify a ledger, a source or a sink of
//! their own. Nothing in here is for production: the simulated parts keep everything in memory, know no
//! wall clock, and repeat themselves exactly for the same seed on a single-threaded runtime.

pub mod dice;
pub mod saboteur;
pub mod sim;
pub mod suite;

pub use dice::Dice;
pub use sim::{SimLane, SimLedger, SimSource, SimUnit};
