//! The ledger and the queue against a real PostgreSQL, each test in a schema of its own.

mod cases;
mod claims;
mod cuts;
mod fences;
mod migrations;
mod plans;
mod proxy;
mod queue;
mod records;
mod rows;
mod traps;
mod world;
