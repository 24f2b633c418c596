//! The one thing that per-message handlers need of a unit beyond the ledger's seam.

use semel_core::Fault;

use crate::tx::Tx;

/// A unit that lends its transaction to handlers. Implemented by the units of the SQL ledgers.
pub trait Lend {
    /// The database.
    type Db: sqlx::Database;

    /// Lends the transaction for one message.
    fn lend(&mut self) -> Tx<'_, Self::Db>;

    /// What the transaction recorded since the unit began or last went back to a savepoint: `None` when
    /// every statement ran well. Asked after the handler returned, since it may have swallowed its errors
    /// (TRAPS T01). A unit with a verdict cannot commit; [`semel_core::Unit::back`] clears it.
    fn verdict(&self) -> Option<Fault>;

    /// Whether a statement since the last [`Lend::lend`] may have written, so that an answer which keeps no
    /// effect has something to undo.
    fn wrote(&self) -> bool;
}
