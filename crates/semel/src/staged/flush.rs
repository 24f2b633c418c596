//! Writes the net effect of a part, set-based: inserts, updates, deltas, and last what depends on the
//! deltas; each table by table, rows sorted by identity.

use semel_core::Fault;
use semel_core::rows::{Delta, Rows, Table, Value};

use super::Staged;
use super::batch::{Batch, Slot, Sums, counter, seen};

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
    /// Those that depend on the deltas of a phase.
    Dependent(Phase),
}

/// When a delta goes to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Behind the inserts.
    First,
    /// Behind everything.
    Last,
}

impl Phase {
    const fn of(sums: &Sums) -> Self {
        if sums.last { Self::Last } else { Self::First }
    }
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
    fn takes<R>(self, slot: &Slot<R>, deltas: &[Sums]) -> bool {
        let wanted = match self {
            Self::Update => slot.found,
            Self::Insert | Self::Dependent(_) => {
                !slot.found && self.waits_for(slot.depends, deltas)
            }
        };
        wanted && slot.put && slot.row.is_some()
    }

    /// Whether rows to insert that depend on this delta, or on none, are of this kind.
    fn waits_for(self, depends: Option<usize>, deltas: &[Sums]) -> bool {
        match self {
            Self::Insert => depends.is_none(),
            Self::Update => false,
            Self::Dependent(phase) => {
                depends.is_some_and(|delta| Phase::of(&deltas[delta]) == phase)
            }
        }
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
    for phase in [Phase::First, Phase::Last] {
        for at in 0..batch.tables.len() {
            if !add(staged, unit, batch, at, phase).await? {
                return Ok(Flushed::Collision(at));
            }
        }
        rebase(staged, batch, phase);
        let kind = Kind::Dependent(phase);
        for (at, table) in batch.tables.iter().enumerate() {
            let origin = collect(staged, batch, at, kind, &mut values);
            if !write(unit, table, (kind, origin), &values).await? {
                return Ok(origin.collision(at));
            }
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
        .filter(|(_, slot)| kind.takes(slot, &batch.deltas))
        .collect();
    rows.sort_unstable_by_key(|(id, _)| *id);
    for row in rows.iter().filter_map(|(_, slot)| slot.row.as_ref()) {
        staged.encode(table, row, values);
    }
    let named = rows.iter().any(|(_, slot)| slot.want.is_some());
    for appended in batch
        .appended
        .iter()
        .filter(|a| a.table == table && kind.waits_for(a.depends, &batch.deltas))
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
        (Kind::Update, _) => unit.update(table, values).await?,
        (Kind::Insert | Kind::Dependent(_), Origin::Named) => unit.insert(table, values).await?,
        (Kind::Insert | Kind::Dependent(_), Origin::New) => unit.append(table, values).await?,
    };
    Ok(written == values.len() / table.width())
}

/// Sends a table's deltas of a phase and learns the counters from before them. Says whether every row took its own.
async fn add<S: Staged, U: Rows>(
    staged: &S,
    unit: &mut U,
    batch: &mut Batch<S::Row>,
    table: usize,
    phase: Phase,
) -> Result<bool, Fault> {
    let description = batch.tables[table];
    let mut deltas: Vec<Delta> = batch
        .deltas
        .iter()
        .filter(|sums| sums.slot.0 == table && sums.adds > 0 && Phase::of(sums) == phase)
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
    if !is_leant_on(batch, table, phase) {
        return Ok(unit.raise(description, &deltas).await? == deltas.len());
    }
    let now = unit.add(description, &deltas).await?;
    for row in now.chunks_exact(description.counted()) {
        learn(batch, table, row);
    }
    Ok(now.len() == deltas.len() * description.counted())
}

/// Whether rows of this batch wait for what the deltas of a table return in a phase.
fn is_leant_on<R>(batch: &Batch<R>, table: usize, phase: Phase) -> bool {
    let leans = |depends: Option<usize>| {
        depends.is_some_and(|delta| {
            let sums = &batch.deltas[delta];
            sums.slot.0 == table && Phase::of(sums) == phase
        })
    };
    batch.appended.iter().any(|row| leans(row.depends))
        || batch.slots.iter().any(|slots| {
            let mut slots = slots.values();
            slots.any(|slot| leans(slot.depends))
        })
}

/// `row` is a row's identity and its counters after the delta.
fn learn<R>(batch: &mut Batch<R>, table: usize, row: &[Value]) {
    let Some(delta) = batch.slots[table].get(&row[0]).and_then(|slot| slot.delta) else {
        return;
    };
    let sums = &mut batch.deltas[delta];
    let counters = row[1..]
        .iter()
        .map(|value| counter(value).unwrap_or_default());
    sums.base = counters
        .zip(&sums.sums)
        .map(|(now, sum)| now.wrapping_sub(*sum))
        .collect();
}

/// Completes the rows that depend on the deltas of a phase.
fn rebase<S: Staged>(staged: &S, batch: &mut Batch<S::Row>, phase: Phase) {
    let Batch {
        slots,
        deltas,
        appended,
        ..
    } = batch;
    let kind = Kind::Dependent(phase);
    for row in appended
        .iter_mut()
        .filter(|row| kind.waits_for(row.depends, deltas))
    {
        if let Some(delta) = row.depends {
            staged.rebase(row.table, &mut row.row, &deltas[delta].base);
        }
    }
    for (table, slots) in slots.iter_mut().enumerate() {
        for slot in slots.values_mut().filter(|slot| kind.takes(slot, deltas)) {
            if let (Some(row), Some(delta)) = (slot.row.as_mut(), slot.depends) {
                staged.rebase(table, row, &deltas[delta].base);
            }
        }
    }
}
