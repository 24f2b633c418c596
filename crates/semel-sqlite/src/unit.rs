//! One unit of work: a transaction on a lane's connection, from its fence to its commit.

use std::collections::HashMap;

use semel_core::ledger::{
    Claim, ClaimKind, Claimed, Commit, Committed, Fence, Prior, Record, Save, SourceId, Unit,
    Written,
};
use semel_core::{Code, Fault, FieldSums, Fingerprint, Key, Outcome, Scheme};
use semel_sql::{Lend, Tx};
use sqlx::Sqlite;
use sqlx::sqlite::SqliteRow;

use crate::fault;
use crate::ledger::{SqliteLane, lane_args};
use crate::link::{Args, Link, no_tail, own};
use crate::record::{self, key_row};
use crate::sql;
use crate::store::Turn;
use crate::value::Columns;

/// An open unit of work on a SQLite file. Dropping it closes the connection: the statement in flight ends first,
/// then SQLite rolls back; the next unit waits for that.
pub struct SqliteUnit {
    pub(crate) lane: SqliteLane,
    fence: Fence,
    /// When it began, by the database's clock, Unix µs: the time of all that it writes.
    now_us: i64,
    saved: Vec<Save>,
    // The last field: the turn passes on after the connection was told to close.
    turn: Turn,
}

impl std::fmt::Debug for SqliteUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteUnit")
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

impl SqliteUnit {
    /// Takes the turn and the write lock, and raises the lane's fence.
    pub(crate) async fn begin(mut lane: SqliteLane) -> Result<Self, Fault> {
        let turn = lane.inner.store.turn().await;
        lane.inner.store.unmoved()?;
        lane.link.run(sql!("begin")).await.map_err(own)?;
        let rows = lane
            .link
            .fetch(sql!("fence"), lane_args(lane.id))
            .await
            .map_err(own)?;
        let raised = rows
            .first()
            .map(|row| Ok::<_, Fault>((row.own::<i64>(0)?, row.own::<i64>(1)?)))
            .transpose()?;
        let confirmed = lane.inner.confirmed().get(&lane.id).copied().unwrap_or(0);
        match raised {
            Some((unit, now_us)) if unit > confirmed => {
                let fence = Fence {
                    lane: lane.id,
                    unit,
                };
                Ok(Self {
                    lane,
                    fence,
                    now_us,
                    saved: Vec::new(),
                    turn,
                })
            }
            Some(_) | None => Err(lane.inner.lost(raised.map(|(unit, _)| unit - 1), confirmed)),
        }
    }

    fn consumer(&self) -> i32 {
        self.fence.lane.consumer.0
    }

    pub(crate) const fn link(&mut self) -> &mut Link {
        &mut self.lane.link
    }

    /// Inserts keys that are not there.
    async fn insert(&mut self, claims: &[&Claim]) -> Result<(), Fault> {
        let (consumer, now_us) = (self.consumer(), self.now_us);
        let row = |args: &mut Args, claim: &&Claim| {
            args.push(consumer);
            key_row(args, &claim.key);
            args.push(&claim.fingerprint.as_bytes()[..]);
            args.push(claim.scheme.0);
            args.push(claim.sums.as_bytes());
            args.push(claim.source.0);
            args.push(now_us);
        };
        let statements = &self.lane.inner.statements;
        let inserted = self
            .lane
            .link
            .change_all(&statements.claim, claims, row, no_tail)
            .await?;
        if usize::try_from(inserted) != Ok(claims.len()) {
            return Err(Fault::busy("a key was neither inserted nor found"));
        }
        Ok(())
    }

    /// The keys that said `parked` and now are this unit's.
    async fn release(&mut self, keys: &[Key]) -> Result<Vec<[u8; 16]>, Fault> {
        let consumer = self.consumer();
        let tail = |args: &mut Args| args.push(consumer);
        let statements = &self.lane.inner.statements;
        sorted_keys(
            &self
                .lane
                .link
                .fetch_all(&statements.release, keys, key_row, tail)
                .await?,
        )
    }

    async fn seen(&mut self, keys: &[Key]) -> Result<HashMap<Key, Prior>, Fault> {
        let consumer = self.consumer();
        let row = |args: &mut Args, key: &Key| {
            args.push(consumer);
            key_row(args, key);
        };
        let statements = &self.lane.inner.statements;
        let rows = self
            .lane
            .link
            .fetch_all(&statements.seen, keys, row, no_tail)
            .await?;
        rows.iter()
            .map(|row| Ok((Key::from_bytes(row.sixteen(0)?), prior(row)?)))
            .collect()
    }

    /// Looks first and inserts what is missing: the unit is the only writer, and a row that is not there costs no
    /// way back from SQLite's thread, which is what a claim costs most.
    async fn claim_all(&mut self, claims: &[Claim]) -> Result<Vec<Claimed>, Fault> {
        let keys = |kind| {
            claims
                .iter()
                .filter(move |claim| claim.kind == kind)
                .map(|claim| claim.key)
        };
        let new: Vec<Key> = keys(ClaimKind::New).collect();
        let released: Vec<Key> = keys(ClaimKind::Released).collect();
        let mut seen = self.seen(&new).await?;
        let missing: Vec<&Claim> = claims
            .iter()
            .filter(|claim| claim.kind == ClaimKind::New && !seen.contains_key(&claim.key))
            .collect();
        self.insert(&missing).await?;
        let taken = self.release(&released).await?;
        let answer = |claim: &Claim| match claim.kind {
            ClaimKind::New => match seen.remove(&claim.key) {
                Some(prior) => Claimed::Seen(Box::new(prior)),
                None => Claimed::Fresh,
            },
            ClaimKind::Released if taken.binary_search(claim.key.as_bytes()).is_ok() => {
                Claimed::Fresh
            }
            ClaimKind::Released => Claimed::Ended,
        };
        Ok(claims.iter().map(answer).collect())
    }

    /// Whether the fence row still carries this unit's number.
    async fn held(&mut self) -> Result<(), Fault> {
        let rows = self
            .lane
            .link
            .fetch(sql!("hold"), lane_args(self.fence.lane))
            .await
            .map_err(own)?;
        let unit = rows.first().map(|row| row.own::<i64>(0)).transpose()?;
        if unit == Some(self.fence.unit) {
            return Ok(());
        }
        Err(Fault::down(format!(
            "SQLite file `{}`: the unit was rolled back underneath; it is run again",
            self.lane.inner.store.file.display()
        )))
    }

    /// What an error of COMMIT means. If ROLLBACK finds the transaction still open and nothing has touched the
    /// disk, it was not committed; all else is for [`semel_core::Ledger::resolve`] to find out.
    async fn failed_commit(&mut self, error: sqlx::Error) -> Commit<SqliteLane> {
        let untouched = fault::is_busy(&error) || fault::is_constraint(&error);
        let fault = self.lane.link.note(error);
        if untouched && self.lane.link.try_run("ROLLBACK").await.is_ok() {
            return Commit::RolledBack(fault);
        }
        Commit::Unknown(fault)
    }
}

impl Unit for SqliteUnit {
    type Lane = SqliteLane;

    fn fence(&self) -> Fence {
        self.fence
    }

    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Claimed>, Fault> {
        self.link().sound()?;
        self.claim_all(claims).await.map_err(own)
    }

    async fn save(&mut self, save: Save) -> Result<(), Fault> {
        // Outside of a transaction SAVEPOINT would begin one.
        self.link().sound()?;
        if self.saved.last() == Some(&save) {
            self.link().run(replaced(save)).await?;
        } else {
            self.link().run(set(save)).await?;
            self.saved.push(save);
        }
        Ok(())
    }

    async fn back(&mut self, save: Save) -> Result<(), Fault> {
        let Some(at) = self.saved.iter().rposition(|saved| *saved == save) else {
            return Err(Fault::stop(format!(
                "the unit has no savepoint {save:?} to go back to"
            )));
        };
        if let Err(error) = self.link().try_run(returned(save)).await {
            let fault = self.link().note(error);
            return Err(own(self.link().watch.verdict().unwrap_or(fault)));
        }
        self.saved.truncate(at + 1);
        self.link().watch.reset();
        Ok(())
    }

    async fn attempt(&mut self, keys: &[Key]) -> Result<Vec<u32>, Fault> {
        self.link().sound()?;
        let consumer = self.consumer();
        let row = |args: &mut Args, key: &Key| {
            args.push(consumer);
            key_row(args, key);
        };
        let statements = &self.lane.inner.statements;
        let rows = self
            .lane
            .link
            .fetch_all(&statements.attempt, keys, row, no_tail)
            .await
            .map_err(own)?;
        let mut attempts = HashMap::with_capacity(rows.len());
        for row in &rows {
            attempts.insert(row.sixteen(0)?, row.own::<u32>(1)?);
        }
        let missing = || Fault::busy("an attempt was not counted");
        keys.iter()
            .map(|key| attempts.get(key.as_bytes()).copied().ok_or_else(missing))
            .collect()
    }

    async fn write(&mut self, record: &Record) -> Result<Written, Fault> {
        self.link().sound()?;
        let SqliteLane { link, inner, .. } = &mut self.lane;
        record::write(
            link,
            &inner.statements,
            self.fence.lane,
            self.now_us,
            record,
        )
        .await
        .map_err(own)
    }

    async fn commit(mut self) -> Commit<SqliteLane> {
        if let Err(fault) = self.link().sound() {
            return Commit::RolledBack(fault);
        }
        if let Err(fault) = self.held().await {
            return Commit::RolledBack(fault);
        }
        if let Err(error) = self.link().try_run("COMMIT").await {
            return self.failed_commit(error).await;
        }
        // A commit into a file that has lost its name is none.
        if let Err(fault) = self.lane.inner.store.unmoved() {
            return Commit::Unknown(fault);
        }
        let Self {
            mut lane,
            fence,
            turn,
            ..
        } = self;
        drop(turn);
        lane.inner.confirmed().insert(fence.lane, fence.unit);
        lane.link.watch.reset();
        Commit::Committed(Committed::witnessed(fence), lane)
    }
}

impl Lend for SqliteUnit {
    type Db = Sqlite;

    fn lend(&mut self) -> Tx<'_, Sqlite> {
        let Link {
            connection, watch, ..
        } = &mut self.lane.link;
        watch.lent();
        Tx::new(connection, watch)
    }

    fn verdict(&self) -> Option<Fault> {
        self.lane.link.watch.verdict()
    }

    fn wrote(&self) -> bool {
        self.lane.link.watch.wrote()
    }
}

const fn set(save: Save) -> &'static str {
    match save {
        Save::Claims => "SAVEPOINT semel_claims",
        Save::Group => "SAVEPOINT semel_group",
    }
}

/// Savepoints of one name pile up until they are released.
const fn replaced(save: Save) -> &'static str {
    match save {
        Save::Claims => "RELEASE semel_claims; SAVEPOINT semel_claims",
        Save::Group => "RELEASE semel_group; SAVEPOINT semel_group",
    }
}

const fn returned(save: Save) -> &'static str {
    match save {
        Save::Claims => "ROLLBACK TO semel_claims",
        Save::Group => "ROLLBACK TO semel_group",
    }
}

/// The keys of rows; SQLite returns them in no promised order.
fn sorted_keys(rows: &[SqliteRow]) -> Result<Vec<[u8; 16]>, Fault> {
    let mut keys = rows
        .iter()
        .map(|row| row.sixteen(0))
        .collect::<Result<Vec<_>, _>>()?;
    keys.sort_unstable();
    Ok(keys)
}

fn prior(row: &SqliteRow) -> Result<Prior, Fault> {
    let outcome = row.own::<i16>(4)?;
    Ok(Prior {
        outcome: Outcome::from_number(outcome).ok_or_else(|| {
            Fault::stop(format!(
                "the ledger has an outcome {outcome} that this program does not know"
            ))
        })?,
        code: row.own::<Option<String>>(5)?.map(Code::stored),
        reply: row.bytes(6)?,
        fingerprint: Fingerprint::from_bytes(row.sixteen(1)?),
        scheme: Scheme(row.own(2)?),
        sums: FieldSums::from_bytes(row.own(3)?),
        source: SourceId(row.own(7)?),
        at_us: row.own(8)?,
    })
}
