//! The program as people and scripts meet it: the built binary, its output and its exit codes, on SQLite and on
//! PostgreSQL alike.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad_input;
mod brokers;
mod cases;
mod commands;
mod config;
mod doctor;
mod exits;
mod grants;
mod kill;
mod parked;
mod place;
mod pooler;
mod port;
mod proxy;
mod rewind;
mod run;
mod schema;
mod secrets;
mod secure;
mod shapes;
mod stops;
mod three_sources;
mod vectors;
mod words;
