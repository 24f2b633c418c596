//! What SQLite's errors mean for a unit: by result code and nothing else (TRAPS T26).

use std::path::Path;
use std::sync::Arc;

use semel_core::{Class, Fault};

/// Primary result codes (sqlite.org/rescode.html).
mod code {
    /// SQLite's word for "the statement is wrong": no such table, no such column, syntax.
    pub(super) const ERROR: i32 = 1;
    pub(super) const BUSY: i32 = 5;
    pub(super) const LOCKED: i32 = 6;
    pub(super) const PERM: i32 = 3;
    pub(super) const NOMEM: i32 = 7;
    pub(super) const READONLY: i32 = 8;
    pub(super) const INTERRUPT: i32 = 9;
    pub(super) const IOERR: i32 = 10;
    pub(super) const CORRUPT: i32 = 11;
    pub(super) const FULL: i32 = 13;
    pub(super) const CANTOPEN: i32 = 14;
    pub(super) const PROTOCOL: i32 = 15;
    pub(super) const SCHEMA: i32 = 17;
    pub(super) const CONSTRAINT: i32 = 19;
    pub(super) const NOTADB: i32 = 26;
}

/// The class of an error that a statement of the user met.
///
/// A violated constraint is `Poison`: SQLite's unit is the only writer, so what it met was there before or was
/// written by the unit itself, and meeting it again would end the same.
#[must_use]
pub fn classify(error: &sqlx::Error) -> Class {
    match error {
        sqlx::Error::Database(_) => match primary(error) {
            Some(code::BUSY | code::LOCKED | code::PROTOCOL | code::SCHEMA) => Class::Busy,
            Some(
                code::FULL
                | code::IOERR
                | code::CANTOPEN
                | code::NOMEM
                | code::READONLY
                | code::PERM
                | code::INTERRUPT,
            ) => Class::Down,
            Some(code::CORRUPT | code::NOTADB) => Class::Stop,
            _ => Class::Poison,
        },
        sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed => Class::Down,
        _ => Class::Poison,
    }
}

/// The primary result code: the low byte of the extended one.
pub(crate) fn primary(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?;
    code.parse::<i32>().ok().map(|extended| extended & 0xff)
}

/// Did a lock prevent it?
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    primary(error) == Some(code::BUSY)
}

/// Did a constraint prevent it? At COMMIT: a deferred foreign key.
pub(crate) fn is_constraint(error: &sqlx::Error) -> bool {
    primary(error) == Some(code::CONSTRAINT)
}

/// An error of the store, with the file and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("SQLite file `{}`: {advice}", file.display())]
struct StoreError {
    file: Arc<Path>,
    advice: &'static str,
    #[source]
    error: sqlx::Error,
}

/// A fault of `class` that names the file.
pub(crate) fn of_store(file: &Arc<Path>, class: Class, error: sqlx::Error) -> Fault {
    let advice = match (primary(&error), class) {
        (Some(code::FULL), _) => "no space is left; free some, and work goes on by itself",
        (Some(code::CANTOPEN), _) => {
            "it cannot be opened; check that its folder exists and can be written to"
        }
        (Some(code::READONLY | code::PERM), _) => {
            "it cannot be written to; check its owner and permissions"
        }
        (Some(code::CORRUPT), _) => {
            "it is damaged; restore it from a backup (`PRAGMA integrity_check` tells more)"
        }
        (Some(code::NOTADB), _) => "it is not a SQLite database; check `ledger.url`",
        (_, Class::Busy) => "another process holds its write lock; trying again",
        (_, Class::Down) => "it cannot be read or written at the moment",
        (_, Class::Stop) => {
            "a statement of the ledger failed; check that the tables are as `semel migrate` left them"
        }
        _ => "it refused a statement",
    };
    // No database, or no such table: nothing of ours is in danger.
    let refuses =
        class == Class::Stop && matches!(primary(&error), Some(code::NOTADB | code::ERROR));
    let error = StoreError {
        file: file.clone(),
        advice,
        error,
    };
    if refuses {
        Fault::refused(error)
    } else {
        Fault::new(class, error)
    }
}

/// A fault of Semel's own statements as a reason to stop: for a missing table the file is not ours to use.
pub(crate) fn stopped(fault: Fault) -> Fault {
    if is_wrong(&fault) {
        Fault::refused(fault.error)
    } else {
        Fault::stop(fault.error)
    }
}

/// SQLite calls the statement wrong.
fn is_wrong(fault: &Fault) -> bool {
    let store = fault.error.downcast_ref::<StoreError>();
    store.is_some_and(|store| primary(&store.error) == Some(code::ERROR))
}

/// A fault of a statement that was generated from a table's description. One that SQLite calls wrong is wrong
/// for every message: the table is missing or is another one, and no message is to blame.
pub(crate) fn of_generated(fault: Fault) -> Fault {
    if is_wrong(&fault) && fault.class == Class::Poison {
        stopped(fault)
    } else {
        fault
    }
}
