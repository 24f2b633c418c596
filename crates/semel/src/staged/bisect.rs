//! Runs a batch as one part, and finds the one message that a flush chokes on by halving (TRAPS T31).
//!
//! Every part reads and decides afresh: an answer that leaned on a neighbour that was thrown away must
//! not stand (TRAPS T39).

use std::ops::Range;

use semel_core::ledger::{Save, Unit};
use semel_core::rows::Rows;
use semel_core::{Class, Fault};

use super::batch::Batch;
use super::flush::Flushed;
use super::naming::{Locked, Memory};
use super::{Staged, deciding, flush, naming};
use crate::handler::{Fresh, Said};

/// How often a part starts again because another unit was faster. Each time the other's row is there
/// to be read, so more than a few mean a storm that is better left by a fresh unit after a pause.
const TRIES_MAX: usize = 8;

/// How a part ended.
enum Part {
    Done(Vec<Said>),
    /// The store refuses something in it; the unit is back where the part began.
    Refused(Fault),
}

/// How one try of a part ended.
enum Try {
    Done(Vec<Said>),
    Again(String),
    /// A row that a message took for new by construction is there: no further try will change that.
    NotNew(String),
}

/// Answers for all of `fresh`.
pub(super) async fn run<S: Staged, U: Unit + Rows>(
    staged: &S,
    unit: &mut U,
    batch: &mut Batch<S::Row>,
    fresh: &[Fresh<'_, S::Work>],
) -> Result<Vec<Said>, Fault> {
    let fault = match part(staged, unit, batch, fresh, Save::Claims).await? {
        Part::Done(said) => return Ok(said),
        Part::Refused(fault) => fault,
    };
    if fresh.len() == 1 {
        return Ok(vec![Said::Fault(fault)]);
    }
    let mut said = Vec::with_capacity(fresh.len());
    let mut parts: Vec<Range<usize>> = Vec::new();
    halve(&mut parts, 0..fresh.len());
    while let Some(range) = parts.pop() {
        unit.save(Save::Group).await?;
        match part(staged, unit, batch, &fresh[range.clone()], Save::Group).await? {
            Part::Done(answers) => said.extend(answers),
            Part::Refused(fault) if range.len() == 1 => said.push(Said::Fault(fault)),
            Part::Refused(_) => halve(&mut parts, range),
        }
    }
    Ok(said)
}

/// Puts the halves of a range on the stack, the first one on top.
fn halve(parts: &mut Vec<Range<usize>>, range: Range<usize>) {
    let middle = range.start + range.len() / 2;
    parts.push(middle..range.end);
    parts.push(range.start..middle);
}

async fn part<S: Staged, U: Unit + Rows>(
    staged: &S,
    unit: &mut U,
    batch: &mut Batch<S::Row>,
    fresh: &[Fresh<'_, S::Work>],
    save: Save,
) -> Result<Part, Fault> {
    let mut last = String::new();
    batch.reads_committed = save == Save::Claims;
    for tries in 1..=TRIES_MAX {
        let memory = if tries == 1 {
            Memory::Trusted
        } else {
            Memory::Doubted
        };
        match attempt(staged, unit, batch, fresh, memory).await {
            Ok(Try::Done(said)) => return Ok(Part::Done(said)),
            Ok(Try::Again(why)) => last = why,
            // Halving is cheaper than trying: it ends at the message that is alone to blame.
            Ok(Try::NotNew(why)) if tries == TRIES_MAX || (tries > 1 && fresh.len() > 1) => {
                unit.back(save).await?;
                return Ok(Part::Refused(Fault::poison(why)));
            }
            Ok(Try::NotNew(why)) => last = why,
            Err(fault) if fault.class == Class::Poison => {
                unit.back(save).await?;
                return Ok(Part::Refused(fault));
            }
            // By another constraint than the identity: the next try sees a row that another unit has just put there.
            Err(fault) if fault.is_clash() && tries == 1 => last = fault.detail(),
            Err(fault) if fault.is_clash() => {
                unit.back(save).await?;
                return Ok(Part::Refused(Fault::poison(fault.error)));
            }
            Err(fault) => return Err(fault),
        }
        unit.back(save).await?;
    }
    Err(Fault::busy(last))
}

async fn attempt<S: Staged, U: Unit + Rows>(
    staged: &S,
    unit: &mut U,
    batch: &mut Batch<S::Row>,
    fresh: &[Fresh<'_, S::Work>],
    memory: Memory,
) -> Result<Try, Fault> {
    batch.clear();
    let Locked::All(endless) = naming::lock(staged, unit, batch, fresh, memory).await? else {
        return Ok(Try::Again(format!(
            "rows kept appearing before their lock, {TRIES_MAX} times"
        )));
    };
    let Some(said) = deciding::decide(staged, batch, fresh, &endless) else {
        return Ok(Try::Again(
            "an answer leans on what was remembered of a row".to_owned(),
        ));
    };
    Ok(match flush::flush(staged, unit, batch).await? {
        Flushed::All => Try::Done(said),
        Flushed::Collision(table) => collided(batch.tables[table].name, batch.puts_unnamed(table)),
        Flushed::NotNew(table) => collided(batch.tables[table].name, true),
    })
}

fn collided(table: &str, unnamed: bool) -> Try {
    if unnamed {
        Try::NotNew(format!(
            "a row of `{table}` that is new by construction is already there"
        ))
    } else {
        Try::Again(format!(
            "other units kept inserting or changing the same rows of `{table}`, {TRIES_MAX} times"
        ))
    }
}
