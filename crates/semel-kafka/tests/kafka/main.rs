//! The source and the sink against a real broker. Needs SEMEL_TEST_KAFKA_BROKERS; `scripts/test` starts one
//! and sets it.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod away;
mod bed;
mod group;
mod laws;
mod proxy;
mod reading;
mod secure;
mod sink;
mod starting;
