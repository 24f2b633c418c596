//! PostgreSQL's ledger with a saboteur between it and the staged engine, and a count of its deadlocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use semel::ledger::{
    Claim, Claimed, Commit, ConsumerId, Enrolled, Enrolment, Fence, LaneId, Ledger, Parked,
    Reached, Record, Resolved, Save, SourceId, Unit, Which, Written,
};
use semel::postgres::{PostgresLedger, Told};
use semel::rows::{Delta, Lock, Rows, Table, Value};
use semel::source::Limit;
use semel::{Fault, Key};
use semel_wallet::row::{ACCOUNT, BET, TABLES};
use tokio::sync::Notify;

/// Units that a broken engine may lose before it is stopped.
const LOST_MAX: usize = 16;

/// How long an unlocked read lets others in.
const PAUSE: Duration = Duration::from_millis(20);

/// What is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Out {
    /// Nothing: Semel as it is.
    Nothing,
    /// The tombstone is not in the row where its original looks for it (TRAPS T35).
    SharedRow,
    /// An insert that met another unit's row is taken for done, so nothing is decided again (TRAPS T39).
    Deciding,
    /// Rows are read, but not locked.
    Locks,
    /// Rows are locked, but each lane in an order of its own.
    Order,
}

pub(crate) struct Tampered {
    ledger: PostgresLedger,
    out: Out,
    /// Units that began and are not committed.
    lost: AtomicUsize,
    pub(crate) deadlocks: AtomicUsize,
    /// Told when a broken engine has lost more units than it can need to: it would run for ever.
    pub(crate) enough: Notify,
    committed: Notify,
}

impl Tampered {
    pub(crate) fn new(ledger: PostgresLedger, out: Out) -> Self {
        let (enough, committed) = (Notify::new(), Notify::new());
        Self {
            ledger,
            out,
            lost: 0.into(),
            deadlocks: 0.into(),
            enough,
            committed,
        }
    }

    /// Whether it was stopped before it had come to its end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.out != Out::Nothing && self.lost.load(Ordering::Relaxed) > LOST_MAX
    }

    /// Whether a run may end before everything is acked.
    pub(crate) fn may_stop(&self) -> bool {
        self.out != Out::Nothing
    }

    pub(crate) const fn ledger(&self) -> &PostgresLedger {
        &self.ledger
    }

    fn watch<T>(&self, done: Result<T, Fault>) -> Result<T, Fault> {
        let code = |fault: &Fault| {
            let error = fault.error.downcast_ref::<Told>()?.0.as_database_error()?;
            error.code().map(std::borrow::Cow::into_owned)
        };
        if done.as_ref().err().and_then(code).as_deref() == Some("40P01") {
            self.deadlocks.fetch_add(1, Ordering::Relaxed);
        }
        done
    }
}

/// The ledger as the engine is given it.
pub(crate) struct Shared(pub(crate) Arc<Tampered>);

pub(crate) struct Lane<L> {
    by: Arc<Tampered>,
    inner: L,
    id: LaneId,
}

type PgLane = <PostgresLedger as Ledger>::Lane;
type PgUnit = <PostgresLedger as Ledger>::Unit;

impl Ledger for Shared {
    type Lane = Lane<PgLane>;
    type Unit = Lane<PgUnit>;

    async fn enroll(&self, enrolment: &Enrolment) -> Result<Enrolled, Fault> {
        self.0.ledger.enroll(enrolment).await
    }

    async fn connect(&self, id: LaneId) -> Result<Self::Lane, Fault> {
        Ok(Lane {
            by: self.0.clone(),
            inner: self.0.ledger.connect(id).await?,
            id,
        })
    }

    async fn begin(&self, lane: Self::Lane) -> Result<Self::Unit, Fault> {
        let lost = self.0.lost.fetch_add(1, Ordering::Relaxed);
        if self.0.out != Out::Nothing && lost > LOST_MAX {
            self.0.enough.notify_one();
        }
        Ok(Lane {
            by: lane.by,
            inner: self.0.ledger.begin(lane.inner).await?,
            id: lane.id,
        })
    }

    async fn resolve(&self, fence: Fence) -> Result<Resolved, Fault> {
        self.0.ledger.resolve(fence).await
    }

    async fn leave(&self, lane: Self::Lane) -> Result<(), Fault> {
        self.0.ledger.leave(lane.inner).await
    }

    async fn parked(
        &self,
        consumer: ConsumerId,
        which: Which<'_>,
        limit: Limit,
    ) -> Result<Vec<Parked>, Fault> {
        self.0.ledger.parked(consumer, which, limit).await
    }

    async fn positions(
        &self,
        consumer: ConsumerId,
        source: SourceId,
    ) -> Result<Vec<Reached>, Fault> {
        self.0.ledger.positions(consumer, source).await
    }
}

impl Unit for Lane<PgUnit> {
    type Lane = Lane<PgLane>;

    fn fence(&self) -> Fence {
        self.inner.fence()
    }

    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Claimed>, Fault> {
        self.by.watch(self.inner.claim(claims).await)
    }

    async fn save(&mut self, save: Save) -> Result<(), Fault> {
        self.inner.save(save).await
    }

    async fn back(&mut self, save: Save) -> Result<(), Fault> {
        self.inner.back(save).await
    }

    async fn attempt(&mut self, keys: &[Key]) -> Result<Vec<u32>, Fault> {
        self.inner.attempt(keys).await
    }

    async fn write(&mut self, record: &Record) -> Result<Written, Fault> {
        self.by.watch(self.inner.write(record).await)
    }

    async fn commit(self) -> Commit<Self::Lane> {
        match self.inner.commit().await {
            Commit::Committed(proof, inner) => {
                self.by.lost.fetch_sub(1, Ordering::Relaxed);
                self.by.committed.notify_waiters();
                Commit::Committed(
                    proof,
                    Lane {
                        by: self.by,
                        inner,
                        id: self.id,
                    },
                )
            }
            Commit::RolledBack(fault) => Commit::RolledBack(fault),
            Commit::Unknown(fault) => Commit::Unknown(fault),
        }
    }
}

impl Rows for Lane<PgUnit> {
    async fn read(
        &mut self,
        table: &'static Table,
        ids: &[Value],
        lock: Lock,
    ) -> Result<Vec<Value>, Fault> {
        match self.by.out {
            Out::Locks => {
                let rows = self.inner.read(table, ids, Lock::None).await;
                let accounts = table.name == TABLES[ACCOUNT].name && lock == Lock::Update;
                if accounts && self.id.lane % 2 == 1 {
                    // Somebody else's commit is let in, if one comes: what a lock keeps out.
                    let _ = tokio::time::timeout(PAUSE, self.by.committed.notified()).await;
                }
                rows
            }
            Out::Order if lock == Lock::Update => {
                let mut order: Vec<&Value> = ids.iter().collect();
                if self.id.lane % 2 == 1 {
                    order.reverse();
                }
                let mut rows = Vec::new();
                for id in order {
                    rows.extend(
                        self.by
                            .watch(self.inner.read(table, std::slice::from_ref(id), lock).await)?,
                    );
                }
                Ok(rows)
            }
            _ => self.by.watch(self.inner.read(table, ids, lock).await),
        }
    }

    async fn insert(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        let rows = values.len() / table.width();
        let status = table
            .columns
            .iter()
            .position(|column| column.name == "status");
        if self.by.out == Out::SharedRow && table.name == TABLES[BET].name {
            let void =
                |row: &&[Value]| status.is_some_and(|at| row[at] == Value::Text("void".into()));
            let kept: Vec<Value> = values
                .chunks_exact(table.width())
                .filter(|row| !void(row))
                .flatten()
                .cloned()
                .collect();
            let lost = rows - kept.len() / table.width();
            return Ok(lost
                + if kept.is_empty() {
                    0
                } else {
                    self.inner.insert(table, &kept).await?
                });
        }
        let inserted = self.by.watch(self.inner.insert(table, values).await)?;
        Ok(if self.by.out == Out::Deciding {
            rows
        } else {
            inserted
        })
    }

    /// Not by way of `insert`: the journal's identity is not unique, so nothing is to be collided with.
    async fn append(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        self.by.watch(self.inner.append(table, values).await)
    }

    async fn update(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        self.by.watch(self.inner.update(table, values).await)
    }

    async fn add(&mut self, table: &'static Table, deltas: &[Delta]) -> Result<Vec<Value>, Fault> {
        self.by.watch(self.inner.add(table, deltas).await)
    }
}
