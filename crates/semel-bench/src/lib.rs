//! The rivals that Semel is compared with, written as well as their kind allows, and what is needed to
//! compare them: the same files, the same database, the same minute, an end state that is checked exactly.
//!
//! - [`naive`]: the usual consumer, one transaction a message. Attacks of the test suite run against it too:
//!   a trap that does not break it proves nothing.
//! - [`expert`]: what somebody writes who knows PostgreSQL well, one transaction and three array statements
//!   a batch.
//! - [`raw`]: the same durable rows by plain array inserts, with no idempotency at all: the yardstick.
//! - [`credits`] and [`book`]: Semel, on the same plain credits and with the wallet's whole double entry.
//!
//! Nothing here is used by Semel itself.

pub mod book;
pub mod contest;
pub mod credits;
pub mod expert;
pub mod measure;
pub mod naive;
pub mod naive_book;
pub mod ops;
pub mod raw;
pub mod run;
pub mod tables;
