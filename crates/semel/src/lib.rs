//! What users of Semel depend on: a [`Consumer`](consumer) pairs sources, a ledger and a handler, and
//! applies each message of an at-least-once broker exactly once in effect.

pub mod handler;
pub mod staged;

pub use semel_core::*;
