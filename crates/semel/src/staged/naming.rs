//! Names and locks: reads what rows refer to in waves without a lock, then locks everything in one pass,
//! then asks again on the locked rows.

use std::cell::Cell;

use semel_core::Fault;
use semel_core::rows::{Lock, Rows, Value};

use super::batch::{Batch, Slot};
use super::{Names, Staged, Want};
use crate::handler::Fresh;

/// How often unlocked reads may name further rows. Naming ends when a wave names no row that is not read yet, mostly
/// after one or two; a chain (a list of bets that names the list before it) takes a wave for each link. One beyond
/// this would hold its unit open for minutes.
pub(super) const WAVES_MAX: usize = 4_096;

/// Whether rows that the handler recalls are taken as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// They are: the first try of a part.
    Trusted,
    /// A try went wrong, maybe by them: everything is read.
    Doubted,
}

/// How the pass went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Locked {
    /// All that the messages name is locked. These messages never came to an end of naming.
    All(Vec<usize>),
    /// Rows appeared or changed before the lock and name further rows: start again.
    Again,
}

/// Collects the names of one message.
struct Namer<'b, R> {
    batch: &'b mut Batch<R>,
    /// Rows to read before this message is asked again, by table.
    unread: &'b mut [Vec<Value>],
    /// It named a row that has to be read first.
    open: bool,
    /// It named a row that is not held as it wants.
    unmet: bool,
    /// Its names depend on rows.
    looked: Cell<bool>,
}

impl<R> Names<R> for Namer<'_, R> {
    fn want(&mut self, table: usize, id: Value, want: Want) {
        let entry = self.batch.slots[table].entry(id);
        let index = entry.index();
        entry.or_insert_with(|| Slot::new(Some(want)));
        let (id, slot) = self.batch.slots[table]
            .get_index_mut(index)
            .expect("the entry has just been filled");
        slot.want = slot.want.max(Some(want));
        match want {
            Want::Refer => {
                self.looked.set(true);
                self.open |= !slot.read;
                self.unmet |= !slot.read;
                if !slot.read && !slot.queued {
                    slot.queued = true;
                    self.unread[table].push(id.clone());
                }
            }
            Want::AddLast | Want::Add => self.unmet |= !slot.read,
            Want::Lock => self.unmet |= !slot.locked,
        }
    }

    fn row(&self, table: usize, id: &Value) -> Option<&R> {
        self.looked.set(true);
        self.batch.slots[table].get(id)?.row.as_ref()
    }
}

/// One message that has been asked.
struct Asked {
    open: bool,
    unmet: bool,
    looked: bool,
}

fn ask<S: Staged>(
    staged: &S,
    batch: &mut Batch<S::Row>,
    unread: &mut [Vec<Value>],
    fresh: &Fresh<'_, S::Work>,
) -> Asked {
    let mut namer = Namer {
        batch,
        unread,
        open: false,
        unmet: false,
        looked: Cell::new(false),
    };
    staged.name(fresh.work, &mut namer);
    Asked {
        open: namer.open,
        unmet: namer.unmet,
        looked: namer.looked.get(),
    }
}

/// Names, reads and locks the rows of a part.
pub(super) async fn lock<S: Staged, U: Rows>(
    staged: &S,
    unit: &mut U,
    batch: &mut Batch<S::Row>,
    fresh: &[Fresh<'_, S::Work>],
    memory: Memory,
) -> Result<Locked, Fault> {
    let mut looked = Vec::new();
    let mut open: Vec<usize> = (0..fresh.len()).collect();
    let mut unread = vec![Vec::new(); batch.tables.len()];
    for wave in 0..=WAVES_MAX {
        open.retain(|&i| {
            let asked = ask(staged, batch, &mut unread, &fresh[i]);
            if wave == 0 && asked.looked {
                looked.push(i);
            }
            asked.open
        });
        if open.is_empty() || wave == WAVES_MAX {
            break;
        }
        for (table, ids) in unread.iter_mut().enumerate() {
            read(staged, unit, batch, table, std::mem::take(ids), Lock::None).await?;
        }
    }
    if memory == Memory::Trusted && !unit.only_writer() {
        recall(staged, batch);
    }
    pass(staged, unit, batch).await?;
    for &i in looked.iter().filter(|i| !open.contains(i)) {
        if ask(staged, batch, &mut unread, &fresh[i]).unmet {
            return Ok(Locked::Again);
        }
    }
    Ok(Locked::All(open))
}

/// The one locking pass: tables in their order, ids sorted. Rows that only get deltas are read beside it,
/// unless the unit is the only writer, who needs no deltas.
async fn pass<S: Staged, U: Rows>(
    staged: &S,
    unit: &mut U,
    batch: &mut Batch<S::Row>,
) -> Result<(), Fault> {
    let only_writer = unit.only_writer();
    let mut slots = batch.slots.iter().flat_map(|slots| slots.values());
    let locks = only_writer || slots.any(|slot| slot.want == Some(Want::Lock));
    for table in 0..batch.tables.len() {
        let (mut lock, mut add) = (Vec::new(), Vec::new());
        for (id, slot) in &mut batch.slots[table] {
            // Nothing changes under the only writer: what it has read is as good as locked.
            slot.locked = only_writer && slot.read;
            match slot.want {
                Some(Want::Lock | Want::Add | Want::AddLast) if slot.locked => {}
                Some(Want::Lock) => lock.push(id.clone()),
                Some(Want::Add) if locks => lock.push(id.clone()),
                Some(Want::AddLast) if only_writer => lock.push(id.clone()),
                Some(Want::Add | Want::AddLast) if !slot.read => add.push(id.clone()),
                Some(Want::Add | Want::AddLast | Want::Refer) | None => {}
            }
        }
        read(staged, unit, batch, table, lock, Lock::Update).await?;
        read(staged, unit, batch, table, add, Lock::None).await?;
    }
    Ok(())
}

/// Takes rows that only get deltas from the handler's memory.
fn recall<S: Staged>(staged: &S, batch: &mut Batch<S::Row>) {
    for (table, slots) in batch.slots.iter_mut().enumerate() {
        let only_added = |slot: &Slot<S::Row>| {
            matches!(slot.want, Some(Want::Add | Want::AddLast)) && !slot.read
        };
        for (id, slot) in slots.iter_mut().filter(|(_, slot)| only_added(slot)) {
            slot.row = staged.recall(table, id);
            slot.found = slot.row.is_some();
            slot.read = slot.found;
            slot.recalled = slot.found;
        }
    }
}

async fn read<S: Staged, U: Rows>(
    staged: &S,
    unit: &mut U,
    batch: &mut Batch<S::Row>,
    table: usize,
    mut ids: Vec<Value>,
    lock: Lock,
) -> Result<(), Fault> {
    if ids.is_empty() {
        return Ok(());
    }
    ids.sort_unstable();
    let values = unit.read(batch.tables[table], &ids, lock).await?;
    batch.take(staged, table, &ids, &values, lock == Lock::Update)
}
