//! Operators' commands that read the ledger: what ended how, what is dead, what waits. They take no lock and write
//! nothing.

mod cells;
mod consumers;
pub(crate) mod dead;
pub(crate) mod parked;
mod show;
mod statements;

pub(crate) use cells::Cells;
pub(crate) use consumers::{consumers, each_row, rows};
pub(crate) use show::{Known, show};
pub(crate) use statements::Statements;
