//! Writes the net effect of a part, set-based: inserts, updates, deltas, and last what depends on the
//! deltas; each table by table, rows sorted by identity.

use semel_core::Fault;
use semel_core::rows::{Delta, Rows, Table, Value};

use super::Staged;
use super::batch::{Batch, Slot, counter, seen};

/// How a flush ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flushed {
    /// Everything is written.
    All,
    /// Another unit was faster with a row of this table (its index): decide again on what is there now.
    Collision(usize),
    /// A row of this table (its index) that is new by construction is there already.
    NotNew(usize),
}

/// Which of a table's rows to write.
#[derive(Clone, Copy)]
enum Kind {
    Insert,
    Update,
    Dependent,
}

/// Where rows to insert come from.
#[derive(Clone, Copy)]
enum Origin {
    /// Some were named and found missing: another unit may insert them first.
    Named,
    /// All are new by construction.
    New,
}

impl Origin {
    const fn collision(self, table: usize) -> Flushed {
        match self {
            Self::Named => Flushed::Collision(table),
            Self::New => Flushed::NotNew(table),
        }
    }
}

impl Kind {
    fn takes<R>(self, slot: &Slot<R>) -> bool {
        let wanted = match self {
            Self::Insert => !slot.found && slot.depends.is_none(),
            Self::Update => slot.found,
            Self::Dependent => !slot.found && slot.depends.is_some(),
        };
        wanted && slot.put && slot.row.is_some()
    }
}

/// Flushes a part.
pub(super) async fn flush<S: Staged, U: Rows>(
    staged: &S,
    unit: &mut U,
    batch: &mut Batch<S::Row>,
) -> Result<Flushed, Fault> {
    let mut values = std::mem::take(&mut batch.values);
    for kind in [Kind::Insert, Kind::Update] {
        for (at, table) in batch.tables.iter().enumerate() {
            let origin = collect(staged, batch, at, kind, &mut values);
            if !write(unit, table, (kind, origin), &values).await? {
                return Ok(origin.collision(at));
            }
        }
    }
    for at in 0..batch.tables.len() {
        if !add(staged, unit, batch, at).await? {
            return Ok(Flushed::Collision(at));
        }
    }
    rebase(staged, batch);
    for (at, table) in batch.tables.iter().enumerate() {
        let origin = collect(staged, batch, at, Kind::Dependent, &mut values);
        if !write(unit, table, (Kind::Dependent, origin), &values).await? {
            return Ok(origin.collision(at));
        }
    }
    batch.values = values;
    Ok(Flushed::All)
}

/// The values of a table's rows of this kind: those with an identity sorted by it, then appended ones in
/// the order of the messages.
fn collect<S: Staged>(
    staged: &S,
    batch: &Batch<S::Row>,
    table: usize,
    kind: Kind,
    values: &mut Vec<Value>,
) -> Origin {
    values.clear();
    let mut rows: Vec<(&Value, &Slot<S::Row>)> = batch.slots[table]
        .iter()
        .filter(|(_, slot)| kind.takes(slot))
        .collect();
    rows.sort_unstable_by_key(|(id, _)| *id);
    for row in rows.iter().filter_map(|(_, slot)| slot.row.as_ref()) {
        staged.encode(table, row, values);
    }
    let dependent = match kind {
        Kind::Insert => false,
        Kind::Dependent => true,
        Kind::Update => return Origin::Named,
    };
    let named = rows.iter().any(|(_, slot)| slot.want.is_some());
    for appended in batch
        .appended
        .iter()
        .filter(|a| a.table == table && a.depends.is_some() == dependent)
    {
        staged.encode(table, &appended.row, values);
    }
    if named { Origin::Named } else { Origin::New }
}

/// Says whether all rows went in, or were found.
async fn write<U: Rows>(
    unit: &mut U,
    table: &'static Table,
    what: (Kind, Origin),
    values: &[Value],
) -> Result<bool, Fault> {
    if values.is_empty() {
        return Ok(true);
    }
    let written = match what {
        (Kind::Insert | Kind::Dependent, Origin::Named) => unit.insert(table, values).await?,
        (Kind::Insert | Kind::Dependent, Origin::New) => unit.append(table, values).await?,
        (Kind::Update, _) => unit.update(table, values).await?,
    };
    Ok(written == values.len() / table.width())
}

/// Sends a table's deltas and learns the counters from before them. Says whether every row took its own.
async fn add<S: Staged, U: Rows>(
    staged: &S,
    unit: &mut U,
    batch: &mut Batch<S::Row>,
    table: usize,
) -> Result<bool, Fault> {
    let description = batch.tables[table];
    let mut deltas: Vec<Delta> = batch
        .deltas
        .iter()
        .filter(|sums| sums.slot.0 == table && sums.adds > 0)
        .filter_map(|sums| {
            let (_, slot) = batch.slots[table].get_index(sums.slot.1)?;
            let mut values = Vec::with_capacity(description.width());
            staged.encode(table, slot.row.as_ref()?, &mut values);
            Some(Delta {
                seen: seen(description, &values),
                add: sums.sums.clone(),
            })
        })
        .collect();
    if deltas.is_empty() {
        return Ok(true);
    }
    deltas.sort_unstable_by(|a, b| a.seen[0].cmp(&b.seen[0]));
    if !is_leant_on(batch, table) {
        return Ok(unit.raise(description, &deltas).await? == deltas.len());
    }
    let now = unit.add(description, &deltas).await?;
    for row in now.chunks_exact(description.width()) {
        learn(batch, table, row);
    }
    Ok(now.len() == deltas.len() * description.width())
}

/// Whether rows of this batch wait for what the deltas of a table return.
fn is_leant_on<R>(batch: &Batch<R>, table: usize) -> bool {
    let leans = |depends: Option<&super::Name>| depends.is_some_and(|name| name.table == table);
    batch.appended.iter().any(|row| leans(row.depends.as_ref()))
        || batch.slots.iter().any(|slots| {
            let mut slots = slots.values();
            slots.any(|slot| leans(slot.depends.as_deref()))
        })
}

fn learn<R>(batch: &mut Batch<R>, table: usize, row: &[Value]) {
    let description = batch.tables[table];
    let Some(delta) = batch.slots[table].get(&row[0]).and_then(|slot| slot.delta) else {
        return;
    };
    let sums = &mut batch.deltas[delta];
    let counters = description
        .counters()
        .map(|at| counter(&row[at]).unwrap_or_default());
    sums.base = counters
        .zip(&sums.sums)
        .map(|(now, sum)| now.wrapping_sub(*sum))
        .collect();
}

/// Completes the rows that depend on deltas.
fn rebase<S: Staged>(staged: &S, batch: &mut Batch<S::Row>) {
    let Batch {
        slots,
        deltas,
        appended,
        ..
    } = batch;
    let base_of = |slots: &[super::batch::Slots<S::Row>], name: &super::Name| {
        let delta = slots[name.table].get(&name.id)?.delta?;
        let base = &deltas[delta].base;
        (!base.is_empty()).then(|| base.clone())
    };
    for row in appended.iter_mut() {
        if let Some(base) = row.depends.as_ref().and_then(|name| base_of(slots, name)) {
            staged.rebase(row.table, &mut row.row, &base);
        }
    }
    for table in 0..slots.len() {
        for index in 0..slots[table].len() {
            let slot = &slots[table][index];
            if !Kind::Dependent.takes(slot) {
                continue;
            }
            let Some(base) = slot.depends.as_ref().and_then(|name| base_of(slots, name)) else {
                continue;
            };
            if let Some(row) = slots[table][index].row.as_mut() {
                staged.rebase(table, row, &base);
            }
        }
    }
}
