//! The typed rows that `decide` works on. Two things are books: the in-memory model, which is the oracle,
//! and the stage of the engine.

use semel_core::Key;

use crate::row::{Account, Bet, Entry, Hold, OperationRow, Round, Snapshot};

/// Rows as they are while one operation is decided. What is written counts only if it is applied.
pub(crate) trait Books {
    fn account(&self, key: Key) -> Option<&Account>;
    fn operation(&self, key: Key) -> Option<&OperationRow>;
    fn hold(&self, key: Key) -> Option<&Hold>;
    fn bet(&self, key: Key) -> Option<&Bet>;
    fn round(&self, key: Key) -> Option<&Round>;

    /// Puts an account: a new one, or one with another status.
    fn put_account(&mut self, row: Account);
    fn put_operation(&mut self, row: OperationRow);
    fn put_hold(&mut self, row: Hold);
    fn put_bet(&mut self, row: Bet);
    fn put_round(&mut self, row: Round);

    /// Adds to the counters of an account that exists, and tells them.
    fn add(&mut self, account: Key, change: Change) -> Snapshot;

    /// Appends an entry.
    fn append(&mut self, entry: Entry);
}

/// What is added to the counters of an account.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Change {
    /// To the balance.
    pub(crate) posted: i128,
    /// To what holds reserve.
    pub(crate) pending: i128,
    /// To the version.
    pub(crate) entries: i64,
}
