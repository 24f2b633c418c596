//! Decides the messages of a part in order of arrival, each on the rows as the applied ones before it
//! left them.

use std::cell::Cell;

use semel_core::rows::Value;
use semel_core::{Answer, Fault};

use super::batch::{Appended, Batch, Slot, Sums, Undo, raise};
use super::naming::WAVES_MAX;
use super::{Added, Name, Stage, Staged, Want};
use crate::handler::{Fresh, Said};

/// Decides every message; `endless` are those that never came to an end of naming. Nothing when a message that is not
/// applied looked at a row that was only recalled: no delta of its own checks that memory.
pub(super) fn decide<S: Staged>(
    staged: &S,
    batch: &mut Batch<S::Row>,
    fresh: &[Fresh<'_, S::Work>],
    endless: &[usize],
) -> Option<Vec<Said>> {
    let mut scratch = Vec::new();
    let mut all = Vec::with_capacity(fresh.len());
    for (i, message) in fresh.iter().enumerate() {
        if endless.contains(&i) {
            let why = format!("its rows still refer to further rows after {WAVES_MAX} reads");
            all.push(Said::Fault(Fault::poison(why)));
            continue;
        }
        let mut stage = Deciding {
            staged,
            batch,
            fault: None,
            remembered: Cell::new(false),
            scratch: &mut scratch,
        };
        let answer = staged.decide(message, &mut stage);
        let remembered = stage.remembered.get();
        let said = conclude(stage.fault.take(), answer, stage.batch);
        if remembered && !matches!(said, Said::Answer(Answer::Applied { .. })) {
            return None;
        }
        all.push(said);
    }
    Some(all)
}

fn conclude<R: Clone>(
    fault: Option<Fault>,
    answer: Result<Answer, Fault>,
    batch: &mut Batch<R>,
) -> Said {
    match (fault, answer) {
        (None, Ok(answer @ Answer::Applied { .. })) => {
            batch.keep();
            Said::Answer(answer)
        }
        (None, Ok(answer)) => {
            batch.undo();
            Said::Answer(answer)
        }
        (Some(fault), _) | (None, Err(fault)) => {
            batch.undo();
            Said::Fault(fault)
        }
    }
}

/// The stage of one message.
struct Deciding<'b, S: Staged> {
    staged: &'b S,
    batch: &'b mut Batch<S::Row>,
    /// The first thing that went wrong inside the stage.
    fault: Option<Fault>,
    /// The message looked at a row that was only recalled.
    remembered: Cell<bool>,
    scratch: &'b mut Vec<Value>,
}

impl<S: Staged> Deciding<'_, S> {
    fn bug(&self, table: usize, id: &Value, is: &str) -> String {
        format!(
            "bug: row {id:?} of `{}` is {is}",
            self.batch.tables[table].name
        )
    }

    /// The row's delta, if it gets one: else nothing about it is open, and who depends on it need not wait.
    fn pending(&self, name: &Name) -> Option<usize> {
        let delta = self.batch.slots[name.table].get(&name.id)?.delta?;
        // Adds of a message that was not applied are taken back and leave an empty sum.
        (self.batch.deltas[delta].adds > 0).then_some(delta)
    }

    fn place(&mut self, table: usize, id: Value, row: S::Row, depends: Option<usize>) {
        let entry = self.batch.slots[table].entry(id);
        let index = entry.index();
        entry.or_insert_with(|| Slot::new(None));
        let (id, slot) = self.batch.slots[table]
            .get_index_mut(index)
            .expect("the entry has just been filled");
        if slot.found && !slot.locked {
            let id = id.clone();
            let why = self.bug(table, &id, "put, but was not wanted as Lock");
            self.fault.get_or_insert_with(|| Fault::poison(why));
            return;
        }
        let kept = slot.depends;
        let row = slot.row.replace(row);
        let put = std::mem::replace(&mut slot.put, true);
        slot.depends = depends.or(kept);
        self.batch.undo.push(Undo::Put {
            slot: (table, index),
            row,
            put,
            depends: kept,
        });
    }

    /// Adds to a row whose counters are known.
    fn add_now(&mut self, table: usize, id: &Value, add: &[i128]) -> Result<Vec<i128>, Fault> {
        let Self {
            staged,
            batch,
            scratch,
            ..
        } = self;
        let row = batch.slots[table]
            .get(id)
            .and_then(|slot| slot.row.as_ref());
        scratch.clear();
        staged.encode(table, row.expect("the caller has seen the row"), scratch);
        let now = raise(batch.tables[table], scratch, add)?;
        let row = staged.decode(table, scratch)?;
        self.place(table, id.clone(), row, None);
        Ok(now)
    }

    /// Adds to what the database will be told.
    fn add_later(&mut self, slot: (usize, usize), add: &[i128]) -> Result<Vec<i128>, Fault> {
        let next = self.batch.deltas.len();
        let (_, row) = self.batch.at(slot);
        let delta = *row.delta.get_or_insert(next);
        if delta == next {
            let last = row.want == Some(Want::AddLast);
            self.batch.deltas.push(Sums {
                slot,
                last,
                sums: vec![0; add.len()],
                base: Vec::new(),
                adds: 0,
            });
        }
        let sums = &mut self.batch.deltas[delta];
        let raised: Option<Vec<i128>> = sums
            .sums
            .iter()
            .zip(add)
            .map(|(sum, add)| sum.checked_add(*add))
            .collect();
        let raised = raised
            .ok_or_else(|| Fault::poison("the sum of this batch's deltas leaves its range"))?;
        sums.sums.clone_from(&raised);
        sums.adds += 1;
        self.batch.undo.push(Undo::Add {
            delta,
            add: add.to_vec(),
        });
        Ok(raised)
    }
}

impl<S: Staged> Stage<S::Row> for Deciding<'_, S> {
    fn get(&self, table: usize, id: &Value) -> Option<&S::Row> {
        match self.batch.slots[table].get(id) {
            Some(slot) => {
                if slot.recalled {
                    self.remembered.set(true);
                }
                slot.row.as_ref()
            }
            None => panic!("{}", self.bug(table, id, "asked for, but was not named")),
        }
    }

    fn held(&self, table: usize, id: &Value) -> bool {
        let slot = self.batch.slots[table].get(id);
        slot.is_some_and(|slot| slot.locked || slot.put)
    }

    fn put(&mut self, table: usize, id: Value, row: S::Row) {
        self.place(table, id, row, None);
    }

    fn put_after(&mut self, table: usize, id: Value, row: S::Row, depends: Name) {
        let depends = self.pending(&depends);
        self.place(table, id, row, depends);
    }

    fn add(&mut self, table: usize, id: &Value, add: &[i128]) -> Added {
        let Some((index, _, slot)) = self.batch.slots[table].get_full(id) else {
            panic!("{}", self.bug(table, id, "added to, but was not named"));
        };
        let added = match (slot.row.is_some(), slot.want) {
            (false, _) => Err(Fault::poison(self.bug(
                table,
                id,
                "added to, but does not exist",
            ))),
            (true, _) if self.held(table, id) => self.add_now(table, id, add).map(Added::Now),
            (true, Some(Want::AddLast | Want::Add)) => {
                self.add_later((table, index), add).map(Added::Later)
            }
            (true, _) => Err(Fault::poison(self.bug(
                table,
                id,
                "added to, but was not wanted as AddLast, Add or Lock",
            ))),
        };
        added.unwrap_or_else(|fault| {
            self.fault.get_or_insert(fault);
            Added::Later(add.to_vec())
        })
    }

    fn append(&mut self, table: usize, row: S::Row, depends: Option<Name>) {
        let depends = depends.and_then(|depends| self.pending(&depends));
        self.batch.appended.push(Appended {
            table,
            row,
            depends,
        });
        self.batch.undo.push(Undo::Append);
    }
}
