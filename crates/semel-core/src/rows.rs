//! Rows of the user's own tables, as the staged engine sees them: a description of each table, typed
//! values, and the few set-based acts that a ledger's unit can do on them. No SQL here; each dialect
//! generates its statements once from the description.

use std::future::Future;

use bytes::Bytes;

use crate::fault::Fault;
use crate::key::Key;

/// A column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// 64-bit integer (`bigint`, `INTEGER`).
    Int,
    /// 128-bit integer: minor units (`numeric(39,0)`; decimal text on SQLite).
    Amount,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// 16 bytes (`uuid`, `BLOB`).
    Key,
    /// An instant, microseconds since 1970 UTC (`timestamptz`; `INTEGER` on SQLite).
    Time,
}

/// A value of one column.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// See [`Type::Int`].
    Int(i64),
    /// See [`Type::Amount`].
    Amount(i128),
    /// See [`Type::Text`].
    Text(Box<str>),
    /// See [`Type::Bytes`].
    Bytes(Bytes),
    /// See [`Type::Key`].
    Key(Key),
    /// See [`Type::Time`].
    Time(i64),
}

/// One column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its name in the database.
    pub name: &'static str,
    /// Its type.
    pub kind: Type,
    /// What happens to it after the row is inserted.
    pub change: Change,
}

/// How a column changes after the row was inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Never.
    Fixed,
    /// Set by [`Rows::update`]; must be unchanged for a delta to apply ([`Rows::add`]).
    Set,
    /// Set by [`Rows::update`], or raised by [`Rows::add`]: an `Int` or `Amount` whose deltas commute.
    Counter,
}

/// A table of the user. The first column is the row's unique identity, of type `Key`, `Text` or `Int`
/// (an append-only table may have another primary key: it is never read or updated here).
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name in the database.
    pub name: &'static str,
    /// Its columns; values of a row come in this order.
    pub columns: &'static [Column],
}

impl Table {
    /// How many values a row has.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.columns.len()
    }

    /// The counters' places, in order.
    pub fn counters(&self) -> impl Iterator<Item = usize> + '_ {
        self.columns
            .iter()
            .enumerate()
            .filter(|(_, c)| c.change == Change::Counter)
            .map(|(i, _)| i)
    }

    /// The columns that [`Rows::add`] tells of a row: its identity and its counters.
    pub fn counted_columns(&self) -> impl Iterator<Item = &'static Column> + '_ {
        let counters = self.counters().map(|place| &self.columns[place]);
        self.columns.iter().take(1).chain(counters)
    }

    /// How many they are.
    #[must_use]
    pub fn counted(&self) -> usize {
        1 + self.counters().count()
    }
}

/// Whether a read takes row locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// No lock: for facts that never change.
    None,
    /// The rows are locked until the unit ends, in the order of `ids`. Where the unit is the only
    /// writer (SQLite) this is a plain read.
    Update,
}

/// A change of one row's counters that commutes with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// Of the row as it was read: its identity, then the `Set` columns in their order, which must not have
    /// changed. Nothing else.
    pub seen: Vec<Value>,
    /// What to add to each counter, in the order of [`Table::counters`].
    pub add: Vec<i128>,
}

/// Set-based acts on the user's tables inside the unit's transaction. Rows travel flat: `values` holds
/// whole rows of `table.width()` values, one behind the other.
pub trait Rows: Send {
    /// Whether an open unit is the only writer of its database (SQLite): then rows never change under
    /// it, and a delta is as good as an update.
    fn only_writer(&self) -> bool {
        false
    }

    /// The rows of `ids` that exist, flat, in any order. `ids` are distinct and sorted.
    ///
    /// # Errors
    /// The store's fault; the unit is lost.
    fn read(
        &mut self,
        table: &'static Table,
        ids: &[Value],
        lock: Lock,
    ) -> impl Future<Output = Result<Vec<Value>, Fault>> + Send;

    /// Inserts rows (sorted by identity) and returns how many went in: fewer than given means that
    /// another unit committed one with its identity first (a collision), and nothing is an error. The identity must
    /// be unique by a constraint.
    ///
    /// # Errors
    /// The store's fault. A violated CHECK or foreign key is `Poison`, another unique constraint `Poison` or, where
    /// units write side by side, a [`Fault::clash`]; the unit may go back to a savepoint and try a part.
    fn insert(
        &mut self,
        table: &'static Table,
        values: &[Value],
    ) -> impl Future<Output = Result<usize, Fault>> + Send;

    /// [`Rows::insert`] of rows that are new by construction: of an append-only table, or with the identity of
    /// an operation whose key is claimed. On servers a plain insert, which costs half of one that expects
    /// collisions. If one is there nevertheless, fewer than given are returned, and the unit has to go back to a
    /// savepoint before anything else.
    ///
    /// # Errors
    /// As [`Rows::insert`].
    fn append(
        &mut self,
        table: &'static Table,
        values: &[Value],
    ) -> impl Future<Output = Result<usize, Fault>> + Send {
        self.insert(table, values)
    }

    /// Sets the `Set` and `Counter` columns of existing rows; returns how many rows were found.
    ///
    /// # Errors
    /// As [`Rows::insert`].
    fn update(
        &mut self,
        table: &'static Table,
        values: &[Value],
    ) -> impl Future<Output = Result<usize, Fault>> + Send;

    /// Adds to counters of rows that were read without a lock, and returns of each its identity and its counters as
    /// they are now, flat: [`Table::counted`] values a row. A row whose `Set` columns changed meanwhile is missing in
    /// the answer. `deltas` are sorted by identity, one per row.
    ///
    /// # Errors
    /// As [`Rows::insert`].
    fn add(
        &mut self,
        table: &'static Table,
        deltas: &[Delta],
    ) -> impl Future<Output = Result<Vec<Value>, Fault>> + Send;

    /// [`Rows::add`] where nobody needs the rows: returns how many took their delta.
    ///
    /// # Errors
    /// As [`Rows::insert`].
    fn raise(
        &mut self,
        table: &'static Table,
        deltas: &[Delta],
    ) -> impl Future<Output = Result<usize, Fault>> + Send {
        async move { Ok(self.add(table, deltas).await?.len() / table.counted()) }
    }
}

/// Read-only queries of operators' commands, on a connection of their own.
///
/// Every dialect gives columns back by their database type, so the code around a query is the same for
/// all: `uuid` → `Key`, integers → `Int`, `numeric` → `Amount`, text → `Text`, `bytea`/`BLOB` → `Bytes`,
/// `timestamptz` → `Time`. SQLite has integers, text and blobs only.
pub trait Query: Send + Sync {
    /// Runs `sql` with `args` and gives every row to `each`, without holding more than a page in memory.
    /// `each` returns `false` to stop.
    ///
    /// # Errors
    /// `Down` when the database is away, `Poison` when it refuses the statement.
    fn query(
        &self,
        sql: &'static str,
        args: &[Value],
        each: &mut (dyn FnMut(&[Value]) -> bool + Send),
    ) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// One small statement of a handler's own outside of units, before the first of them: for facts that are recorded once,
/// such as the scale of an asset. What belongs to an operation belongs into its unit.
pub trait Register: Query {
    /// Runs `sql` with `args` in a transaction of its own. It may run twice, since the answer of its commit may be lost.
    ///
    /// # Errors
    /// As [`Query::query`]; `Busy` when it conflicts with another transaction.
    fn register(
        &self,
        sql: &'static str,
        args: &[Value],
    ) -> impl Future<Output = Result<(), Fault>> + Send;
}
