//! The rows of one batch in memory: what was named, what was read, what is to be written.
//!
//! Rows are changed in place; an undo log takes a message's changes back when it does not answer
//! `Applied`. So a row is neither copied when it is read nor when it is kept.

use indexmap::IndexMap;
use semel_core::Fault;
use semel_core::rows::{Change, Table, Type, Value};

use super::hash::Build;
use super::{Staged, Want};

/// One named row.
#[derive(Debug)]
pub(super) struct Slot<R> {
    /// The strongest want; `None` for a row that was put without being named.
    pub(super) want: Option<Want>,
    /// It has been read, locked or not, or a missing row was looked for.
    pub(super) read: bool,
    /// It is on the list of rows to read before its messages are asked again.
    pub(super) queued: bool,
    /// It comes from the handler's memory.
    pub(super) recalled: bool,
    /// It was read under the lock of its want.
    pub(super) locked: bool,
    /// It exists in the database.
    pub(super) found: bool,
    /// It as it is now.
    pub(super) row: Option<R>,
    /// It has to be written.
    pub(super) put: bool,
    /// Its place in [`Batch::deltas`].
    pub(super) delta: Option<usize>,
    /// The delta that its content waits for, its place in [`Batch::deltas`].
    pub(super) depends: Option<usize>,
}

impl<R> Slot<R> {
    pub(super) const fn new(want: Option<Want>) -> Self {
        Self {
            want,
            read: false,
            queued: false,
            recalled: false,
            locked: false,
            found: false,
            row: None,
            put: false,
            delta: None,
            depends: None,
        }
    }
}

pub(super) type Slots<R> = IndexMap<Value, Slot<R>, Build>;

/// What this batch adds to one row.
#[derive(Debug)]
pub(super) struct Sums {
    pub(super) slot: (usize, usize),
    /// It comes behind all others.
    pub(super) last: bool,
    /// One sum per counter.
    pub(super) sums: Vec<i128>,
    /// The counters before this batch, once the flush knows them.
    pub(super) base: Vec<i128>,
    /// How many adds are in the sums: a row whose adds were all undone is not written.
    pub(super) adds: usize,
}

/// A row for an append-only table.
#[derive(Debug)]
pub(super) struct Appended<R> {
    pub(super) table: usize,
    pub(super) row: R,
    pub(super) depends: Option<usize>,
}

/// How to take back one staged act.
#[derive(Debug)]
pub(super) enum Undo<R> {
    Put {
        slot: (usize, usize),
        row: Option<R>,
        put: bool,
        depends: Option<usize>,
    },
    Add {
        delta: usize,
        add: Vec<i128>,
    },
    Append,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Batch<R> {
    pub(super) tables: &'static [&'static Table],
    pub(super) slots: Vec<Slots<R>>,
    pub(super) deltas: Vec<Sums>,
    pub(super) appended: Vec<Appended<R>>,
    pub(super) undo: Vec<Undo<R>>,
    /// Values on their way to the store, kept for their memory only.
    pub(super) values: Vec<Value>,
    /// What is read now was committed: the unit has written no row yet that may be rolled back with it.
    pub(super) reads_committed: bool,
}

impl<R: Clone> Batch<R> {
    pub(super) fn new(tables: &'static [&'static Table]) -> Self {
        let slots = tables.iter().map(|_| Slots::default());
        Self {
            tables,
            slots: slots.collect(),
            deltas: Vec::new(),
            appended: Vec::new(),
            undo: Vec::new(),
            values: Vec::new(),
            reads_committed: false,
        }
    }

    /// Forgets everything but the memory.
    pub(super) fn clear(&mut self) {
        self.slots.iter_mut().for_each(Slots::clear);
        self.deltas.clear();
        self.appended.clear();
        self.undo.clear();
        self.values.clear();
    }

    pub(super) fn at(&mut self, (table, index): (usize, usize)) -> (&Value, &mut Slot<R>) {
        let (id, slot) = self.slots[table]
            .get_index_mut(index)
            .expect("slots are never removed");
        (id, slot)
    }

    /// Takes rows in as they were read.
    pub(super) fn take<S: Staged<Row = R>>(
        &mut self,
        staged: &S,
        table: usize,
        ids: &[Value],
        values: &[Value],
        locked: bool,
    ) -> Result<(), Fault> {
        for id in ids {
            let slot = self.slots[table]
                .get_mut(id)
                .expect("only named rows are read");
            slot.read = true;
            slot.recalled = false;
            slot.locked = locked;
            slot.found = false;
            slot.row = None;
        }
        for row in values.chunks_exact(self.tables[table].width()) {
            let slot = self.slots[table]
                .get_mut(&row[0])
                .ok_or_else(|| stranger(self.tables[table], &row[0]))?;
            let row = staged.decode(table, row).map_err(poison)?;
            if self.reads_committed {
                staged.learn(table, &row);
            }
            slot.found = true;
            slot.row = Some(row);
        }
        Ok(())
    }

    /// Whether a row of this table is put that nobody named, since its identity was held for new.
    pub(super) fn puts_unnamed(&self, table: usize) -> bool {
        self.slots[table]
            .values()
            .any(|slot| slot.want.is_none() && slot.put)
    }

    /// Keeps what the message staged.
    pub(super) fn keep(&mut self) {
        self.undo.clear();
    }

    /// Takes back what the message staged.
    pub(super) fn undo(&mut self) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Put {
                    slot,
                    row,
                    put,
                    depends,
                } => {
                    let (_, slot) = self.at(slot);
                    slot.row = row;
                    slot.put = put;
                    slot.depends = depends;
                }
                Undo::Add { delta, add } => {
                    let sums = &mut self.deltas[delta];
                    sums.adds -= 1;
                    // Wrapping undoes exactly what the checked addition did.
                    sums.sums
                        .iter_mut()
                        .zip(&add)
                        .for_each(|(sum, add)| *sum = sum.wrapping_sub(*add));
                }
                Undo::Append => {
                    self.appended.pop();
                }
            }
        }
    }
}

fn stranger(table: &Table, id: &Value) -> Fault {
    Fault::poison(format!(
        "table `{}` returned row {id:?}, which was not asked for",
        table.name
    ))
}

/// What a handler's own code could not do with a row concerns that row's messages, not the store.
pub(super) fn poison(fault: Fault) -> Fault {
    Fault::poison(fault.error)
}

/// Adds to the counters of a row's values; gives the counters after it.
pub(super) fn raise(table: &Table, values: &mut [Value], add: &[i128]) -> Result<Vec<i128>, Fault> {
    let mut now = Vec::with_capacity(add.len());
    for (at, add) in table.counters().zip(add) {
        let column = &table.columns[at];
        let sum = counter(&values[at]).and_then(|c| c.checked_add(*add));
        let value = sum.and_then(|sum| match column.kind {
            Type::Amount => Some(Value::Amount(sum)),
            Type::Int => i64::try_from(sum).ok().map(Value::Int),
            Type::Text | Type::Bytes | Type::Key | Type::Time => None,
        });
        let (Some(sum), Some(value)) = (sum, value) else {
            return Err(Fault::poison(format!(
                "counter `{}.{}` leaves its range",
                table.name, column.name
            )));
        };
        values[at] = value;
        now.push(sum);
    }
    Ok(now)
}

/// A counter's value.
pub(super) fn counter(value: &Value) -> Option<i128> {
    match value {
        Value::Amount(amount) => Some(*amount),
        Value::Int(int) => Some(i128::from(*int)),
        Value::Null | Value::Text(_) | Value::Bytes(_) | Value::Key(_) | Value::Time(_) => None,
    }
}

/// Of a row's values its identity and the columns that must not change for a delta to apply.
pub(super) fn seen(table: &Table, values: &[Value]) -> Vec<Value> {
    let set = values
        .iter()
        .zip(table.columns)
        .skip(1)
        .filter(|(_, column)| column.change == Change::Set);
    values
        .first()
        .into_iter()
        .chain(set.map(|(value, _)| value))
        .cloned()
        .collect()
}
