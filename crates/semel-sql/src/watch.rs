//! What a unit remembers of the statements that ran through its [`Tx`](crate::Tx): the first error, and
//! whether anything may have been written. It outlives the `Tx`, so the engine reads it after the handler
//! returned, whatever the handler did with its errors.

use std::fmt;

use semel_core::{Class, Fault};
use sqlx::error::ErrorKind;

use crate::text::{self, Text};
use crate::told::told;

/// The record of one unit's lent statements. Owned by the unit, borrowed by each `Tx`.
pub struct Watch {
    classify: fn(&sqlx::Error) -> Class,
    first: Option<First>,
    wrote: bool,
}

/// The first thing that went wrong.
struct First {
    class: Class,
    detail: String,
    clash: bool,
}

impl Watch {
    /// A clean record. `classify` is the dialect's: by SQLSTATE, result code and constraint name, never by
    /// the text of a message (TRAPS T26).
    #[must_use]
    pub fn new(classify: fn(&sqlx::Error) -> Class) -> Self {
        Self {
            classify,
            first: None,
            wrote: false,
        }
    }

    /// The fault of the first error since the last [`Watch::reset`]; `None` when every statement ran well.
    /// Its class is the store's.
    #[must_use]
    pub fn verdict(&self) -> Option<Fault> {
        self.first
            .as_ref()
            .map(|first| match (first.class, first.clash) {
                (Class::Retry, true) => Fault::clash(first.detail.clone()),
                (class, _) => Fault::new(class, first.detail.clone()),
            })
    }

    /// Whether a statement since the last [`Watch::lent`] may have written. Only a plain `SELECT` that calls
    /// nothing but well-known functions is believed to write nothing.
    #[must_use]
    pub const fn wrote(&self) -> bool {
        self.wrote
    }

    /// Called by a unit that lends its connection anew: forgets the writes, keeps the error.
    pub fn lent(&mut self) {
        self.wrote = false;
    }

    /// Called by a unit that went back to a savepoint: the error is healed, the writes are undone.
    pub fn reset(&mut self) {
        self.first = None;
        self.wrote = false;
    }

    /// Records an error of the driver or the database; the first one stays.
    pub fn record(&mut self, error: &sqlx::Error) {
        let class = (self.classify)(error);
        let constraint = error.as_database_error().map(|error| error.kind());
        let clash = matches!(
            constraint,
            Some(ErrorKind::UniqueViolation | ErrorKind::ExclusionViolation)
        );
        self.first.get_or_insert_with(|| First {
            class,
            detail: told(error),
            clash,
        });
    }

    /// A statement was started and dropped before it ended. Its error, if it has one, would come out of the
    /// next statement (TRAPS T64), and what it did is unknown.
    pub(crate) fn abandon(&mut self) {
        self.fail(Class::Poison, || {
            "a statement was dropped before it ended; read its rows to the end, or fetch one with \
             `fetch_optional`"
                .to_owned()
        });
    }

    /// Decides whether a statement may run.
    pub(crate) fn admit(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        if let Some(first) = &self.first {
            return Err(sqlx::Error::InvalidArgument(format!(
                "this transaction runs nothing more, since a statement before failed: {}; return that error",
                first.detail
            )));
        }
        match text::judge(sql) {
            Text::Reads => Ok(()),
            Text::Writes => {
                self.wrote = true;
                Ok(())
            }
            Text::Controls(word) => {
                self.refuse(&format!(
                    "`{word}` is not for a handler: the unit of work begins, saves and commits by itself; \
                     return a `Fault` to undo what this message did"
                ))
            }
        }
    }

    /// Runs nothing, and remembers why.
    pub(crate) fn refuse(&mut self, why: &str) -> Result<(), sqlx::Error> {
        self.fail(Class::Poison, || why.to_owned());
        Err(sqlx::Error::InvalidArgument(why.to_owned()))
    }

    fn fail(&mut self, class: Class, detail: impl FnOnce() -> String) {
        if self.first.is_none() {
            self.first = Some(First {
                class,
                detail: detail(),
                clash: false,
            });
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("first", &self.first.as_ref().map(|first| &first.detail))
            .field("wrote", &self.wrote)
            .finish_non_exhaustive()
    }
}
