//! Staged handlers: name the rows, let the engine lock and load them in one pass, decide in plain Rust,
//! and let the engine write the result set-based. The fastest kind that still answers per message.
//!
//! How a batch runs (DESIGN §3):
//! 1. every message names its rows ([`Staged::name`]); rows that are only *referred* to are read without
//!    a lock, and the messages that named them are asked again, until nothing new is named;
//! 2. all rows to lock are locked in **one** pass, in the order of [`Staged::tables`] and of their ids; then
//!    every message is asked again on the locked rows: one that appeared or changed meanwhile (a round
//!    with one more bet) and names rows that are not locked starts the pass again;
//! 3. [`Staged::decide`] runs for each message in order of arrival; what it stages is kept only when it
//!    answers `Applied`;
//! 4. the net effect is flushed: inserts first (in table and id order), then updates, then deltas and the rows that
//!    depend on what they returned, those of [`Want::AddLast`] at the very end. An insert that collides with another unit's row goes
//!    back behind the claims and decides again; a flush that fails is bisected, and every part is
//!    decided again.

mod batch;
mod bisect;
mod deciding;
mod flush;
mod handler;
mod hash;
mod naming;
#[cfg(test)]
mod tests;

pub use handler::{StagedHandler, handler};

use semel_core::fingerprint::{FieldSums, Fingerprint};
use semel_core::law::Reject;
use semel_core::rows::{Table, Value};
use semel_core::{Answer, Fault, Message};

use crate::handler::{Bound, Fresh};

/// One row: its table (index in [`Staged::tables`]) and its identity (the first column's value).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// Index of the table.
    pub table: usize,
    /// The identity.
    pub id: Value,
}

/// What a message wants of the rows it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Want {
    /// Only what never changes in it, to learn further names. Read without a lock.
    Refer,
    /// Its counters get deltas that commute, and nothing is decided on them: the delta comes behind the inserts, without a
    /// lock before. In a batch that locks anything it is locked too, in the one pass: units that lock some rows and
    /// then raise others by deltas would wait for each other in a circle. So it is where the ledger's unit is the
    /// only writer, and the delta is applied to the row directly.
    Add,
    /// Like `Add`, for a row that all units meet at: its delta comes last, behind all others and what depends on those, and
    /// beside locked rows too. It is locked only if a message of the batch wants `Lock` of it.
    AddLast,
    /// It decides on the row, whether it exists or not. Locked.
    Lock,
}

/// Collects the names of one message.
pub trait Names<R> {
    /// Names a row. A row may be named more than once: named as `Refer` and as `Lock` it is read first,
    /// to learn further names, and locked in the pass.
    fn want(&mut self, table: usize, id: Value, want: Want);

    /// A row that an earlier wave has read, if it exists.
    fn row(&self, table: usize, id: &Value) -> Option<&R>;
}

/// The rows of a batch while one message is decided.
pub trait Stage<R> {
    /// The row as it is now, with all that was staged before. Only named rows, and rows put before, may be
    /// asked for. The counters of a row that is not [held](Stage::held) are those of an unlocked read: no decision
    /// may lean on them.
    ///
    /// # Panics
    /// When the row was not named: a bug in [`Staged::name`].
    fn get(&self, table: usize, id: &Value) -> Option<&R>;

    /// Whether nobody else can change the row now: it was locked, or this batch put it. Its counters are known then, and
    /// [`Stage::put`] may change it.
    fn held(&self, table: usize, id: &Value) -> bool;

    /// Puts a row: an insert when it does not exist yet, else an update. An insert needs no name: a row
    /// whose identity is new by construction (the operation's own key) is put without being named.
    fn put(&mut self, table: usize, id: Value, row: R);

    /// Like [`Stage::put`] of a new row whose content depends on an [`Added::Later`]: it is inserted
    /// after the flush of the deltas, and [`Staged::rebase`] completes it before. A later `put` of the
    /// same row in this batch changes the content and keeps the dependence.
    fn put_after(&mut self, table: usize, id: Value, row: R, depends: Name);

    /// Adds to the counters of a row wanted as `AddLast`, `Add` or `Lock`, in the order of `Table::counters`. On a row that
    /// is held anyway the result is already absolute ([`Added::Now`]); else it is relative to what the
    /// database will return ([`Added::Later`]).
    fn add(&mut self, table: usize, id: &Value, add: &[i128]) -> Added;

    /// Appends a row to an append-only table. If its content depends on an [`Added::Later`], it names
    /// the row it depends on, and [`Staged::rebase`] completes it after the flush of the deltas.
    fn append(&mut self, table: usize, row: R, depends: Option<Name>);
}

/// Counters after [`Stage::add`], in the order of `Table::counters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Added {
    /// The counters now.
    Now(Vec<i128>),
    /// Sums added by this batch so far, including this one; the base comes with the flush.
    Later(Vec<i128>),
}

/// A handler that decides on rows.
pub trait Staged: Send + Sync + 'static {
    /// The parsed form of a message.
    type Work: Send + Sync + 'static;
    /// A row of any of the tables, as the handler likes to see it.
    type Row: Clone + Send + Sync + 'static;

    /// The handler's name: part of the consumer's owner.
    fn name_of_handler(&self) -> &str;

    /// Hash of the key rules.
    fn rules(&self) -> Fingerprint;

    /// The tables, in the order in which they are locked and written.
    fn tables(&self) -> &'static [&'static Table];

    /// Binds a message to its operation.
    ///
    /// # Errors
    /// Why it is dead before it could be claimed.
    fn bind(&self, message: &Message) -> Result<Bound<Self::Work>, Reject>;

    /// See [`crate::handler::Handler::told_time`].
    fn told_time(&self, _now_ms: u64) {}

    /// See [`crate::handler::Handler::same`].
    fn same(&self, _message: &Message, _work: &Self::Work, _first: Fingerprint) -> bool {
        false
    }

    /// See [`crate::handler::Handler::differing`].
    fn differing(&self, message: &Message, work: &Self::Work, stored: &FieldSums)
    -> Option<String>;

    /// Names the rows of one message. Called again after each wave of `Refer` reads, so it names what
    /// the rows it can see name.
    fn name(&self, work: &Self::Work, names: &mut dyn Names<Self::Row>);

    /// A row from its values, in the order of the table's columns.
    ///
    /// # Errors
    /// `Poison`-class when the values are not a row that this handler wrote.
    fn decode(&self, table: usize, values: &[Value]) -> Result<Self::Row, Fault>;

    /// A row's values, in the order of the table's columns, appended to `values`.
    fn encode(&self, table: usize, row: &Self::Row, values: &mut Vec<Value>);

    /// Decides one message. What it stages counts only if it answers `Applied`.
    ///
    /// # Errors
    /// `Poison` or `Retry` of this message.
    fn decide(
        &self,
        fresh: &Fresh<'_, Self::Work>,
        stage: &mut dyn Stage<Self::Row>,
    ) -> Result<Answer, Fault>;

    /// Learns that a row was read (locked or not), as another unit committed it, so that later [`Staged::name`] calls may know facts
    /// of it that never change. A hint only; the default forgets.
    fn learn(&self, _table: usize, _row: &Self::Row) {}

    /// A row that the handler knows without looking, wanted as `Add` or `AddLast`: it is not read. The delta itself
    /// checks that the row is there and its `Set` columns are those given; if not, the part is decided again on
    /// rows that are read. So it is when a message that looked at such a row is not applied, since no delta checks
    /// what its answer leans on. The default knows nothing.
    fn recall(&self, _table: usize, _id: &Value) -> Option<Self::Row> {
        None
    }

    /// Completes a row of [`Stage::append`] or [`Stage::put_after`] that depends on deltas: `base` are the counters of the named row as
    /// they were before this batch's deltas.
    fn rebase(&self, table: usize, row: &mut Self::Row, base: &[i128]);
}
