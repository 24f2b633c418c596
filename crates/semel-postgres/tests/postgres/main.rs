//! The ledger and the queue against a real PostgreSQL, each test in a schema of its own.
#![expect(
    clippy::unwrap_used,
    reason = "everything in this crate is a test or a test's helper"
)]

mod cases;
mod claims;
mod cuts;
mod fences;
mod migrations;
mod plans;
mod pooler;
mod proxy;
mod queue;
mod records;
mod rows;
mod traps;
mod world;
