//! The program as people and scripts meet it: the built binary, its output and its exit codes, on SQLite and on
//! PostgreSQL alike.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad_input;
mod cases;
mod commands;
mod config;
mod exits;
mod kill;
mod place;
mod run;
mod schema;
mod secrets;
mod shapes;
mod stops;
mod vectors;
mod words;
