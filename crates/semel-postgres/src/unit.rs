//! An open unit of work: one transaction on the lane's connection, from the raised fence to a commit with three
//! outcomes.

use std::fmt;

use semel_core::ledger::{Claim, Claimed, Commit, Committed, Fence, Record, Save, Written};
use semel_core::rows::{Lock, Rows, Table, Value};
use semel_core::{Fault, Key, Unit, rows};
use semel_sql::{Lend, Tx, Watch};

use crate::fault::{classify, fault, is_fence_lost, own, proves_rollback};
use crate::ledger::PostgresLane;
use crate::{claim, record, session};

/// An open unit of work. Dropping it closes the connection, which rolls it back.
pub struct PostgresUnit {
    lane: PostgresLane,
    fence: Fence,
    watch: Watch,
    /// Which savepoints are set: an older one of the same name must be released, or they pile up.
    claims_saved: bool,
    group_saved: bool,
    /// A call is under way. Still set when the next one comes, it was dropped half-way, and what it did is
    /// unknown.
    under_way: bool,
}

impl fmt::Debug for PostgresUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresUnit")
            .field("fence", &self.fence)
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}

impl PostgresUnit {
    pub(crate) fn new(lane: PostgresLane, fence: Fence) -> Self {
        let watch = Watch::new(classify);
        Self {
            lane,
            fence,
            watch,
            claims_saved: false,
            group_saved: false,
            under_way: false,
        }
    }

    /// Runs one call on the connection.
    async fn run<T: Send>(
        &mut self,
        call: impl AsyncFnOnce(&mut PostgresLane) -> Result<T, Fault> + Send,
    ) -> Result<T, Fault> {
        if self.under_way {
            return Err(dropped_call());
        }
        self.under_way = true;
        let answer = call(&mut self.lane).await;
        self.under_way = false;
        answer
    }

    async fn script(&mut self, sql: &'static str) -> Result<(), Fault> {
        self.run(async |lane| session::script(&mut lane.connection, sql).await)
            .await
    }
}

impl Unit for PostgresUnit {
    type Lane = PostgresLane;

    fn fence(&self) -> Fence {
        self.fence
    }

    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Claimed>, Fault> {
        self.run(async |lane| {
            let manner = &lane.shared.manner;
            claim::claim(&mut lane.connection, manner, lane.id.consumer, claims).await
        })
        .await
        .map_err(own)
    }

    async fn save(&mut self, save: Save) -> Result<(), Fault> {
        let sql = match (save, self.claims_saved, self.group_saved) {
            (Save::Claims, false, _) => "SAVEPOINT semel_claims",
            (Save::Claims, true, _) => "RELEASE SAVEPOINT semel_claims; SAVEPOINT semel_claims",
            (Save::Group, _, false) => "SAVEPOINT semel_group",
            (Save::Group, _, true) => "RELEASE SAVEPOINT semel_group; SAVEPOINT semel_group",
        };
        self.script(sql).await?;
        match save {
            // A group's savepoint lies behind the claims' and is gone with the older one.
            Save::Claims => (self.claims_saved, self.group_saved) = (true, false),
            Save::Group => self.group_saved = true,
        }
        Ok(())
    }

    async fn back(&mut self, save: Save) -> Result<(), Fault> {
        let sql = match save {
            Save::Claims => "ROLLBACK TO SAVEPOINT semel_claims",
            Save::Group => "ROLLBACK TO SAVEPOINT semel_group",
        };
        self.script(sql).await?;
        if save == Save::Claims {
            self.group_saved = false;
        }
        self.watch.reset();
        Ok(())
    }

    async fn attempt(&mut self, keys: &[Key]) -> Result<Vec<u32>, Fault> {
        self.run(async |lane| record::attempt(&mut lane.connection, lane.id.consumer, keys).await)
            .await
            .map_err(own)
    }

    async fn write(&mut self, record: &Record) -> Result<Written, Fault> {
        self.run(async |lane| record::write(&mut lane.connection, lane.id, record).await)
            .await
            .map_err(own)
    }

    async fn commit(mut self) -> Commit<PostgresLane> {
        if let Some(verdict) = self.watch.verdict() {
            return Commit::RolledBack(verdict);
        }
        if self.under_way {
            return Commit::RolledBack(dropped_call());
        }
        // The fence is checked in the same request, right before the COMMIT, which runs only if the check passed.
        match self.lane.connection.hold_and_commit().await {
            Ok(()) => {
                self.lane.shared.confirm(self.fence);
                Commit::Committed(Committed::witnessed(self.fence), self.lane)
            }
            Err(error) if is_fence_lost(&error) => Commit::RolledBack(Fault::stop(
                "the fence row was not raised by this transaction, or its commit would not be durable: something ended the \
                 unit's transaction and began another, or switched synchronous_commit off; find the statement that \
                 does it in the handler",
            )),
            Err(error) if proves_rollback(&error) => Commit::RolledBack(fault(error)),
            Err(error) => Commit::Unknown(Fault::down(error)),
        }
    }
}

fn dropped_call() -> Fault {
    Fault::down("a call on this unit was dropped before it ended; drop the unit and run it again")
}

impl Lend for PostgresUnit {
    type Db = sqlx::Postgres;

    fn lend(&mut self) -> Tx<'_, sqlx::Postgres> {
        self.watch.lent();
        self.lane.connection.lend(&mut self.watch)
    }

    fn verdict(&self) -> Option<Fault> {
        self.watch.verdict()
    }

    fn wrote(&self) -> bool {
        self.watch.wrote()
    }
}

impl Rows for PostgresUnit {
    async fn read(
        &mut self,
        table: &'static Table,
        ids: &[Value],
        lock: Lock,
    ) -> Result<Vec<Value>, Fault> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.run(async |lane| {
            let acts = lane.shared.statements.of(table);
            let sql = match lock {
                Lock::None => &acts.read,
                Lock::Update => &acts.read_locked,
            };
            crate::rows::read(&mut lane.connection, sql.clone(), table, ids).await
        })
        .await
    }

    async fn insert(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        if values.is_empty() {
            return Ok(0);
        }
        self.run(async |lane| {
            let acts = lane.shared.statements.of(table);
            crate::rows::insert(&mut lane.connection, &acts, table, values).await
        })
        .await
    }

    async fn append(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        if values.is_empty() {
            return Ok(0);
        }
        self.run(async |lane| {
            let acts = lane.shared.statements.of(table);
            crate::rows::append(&mut lane.connection, &acts, table, values).await
        })
        .await
    }

    async fn update(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        if values.is_empty() {
            return Ok(0);
        }
        self.run(async |lane| {
            let acts = lane.shared.statements.of(table);
            crate::rows::update(&mut lane.connection, &acts, table, values).await
        })
        .await
    }

    async fn add(
        &mut self,
        table: &'static Table,
        deltas: &[rows::Delta],
    ) -> Result<Vec<Value>, Fault> {
        if deltas.is_empty() {
            return Ok(Vec::new());
        }
        self.run(async |lane| {
            let acts = lane.shared.statements.of(table);
            crate::rows::add(&mut lane.connection, &acts, table, deltas).await
        })
        .await
    }

    async fn raise(
        &mut self,
        table: &'static Table,
        deltas: &[rows::Delta],
    ) -> Result<usize, Fault> {
        if deltas.is_empty() {
            return Ok(0);
        }
        self.run(async |lane| {
            let acts = lane.shared.statements.of(table);
            crate::rows::raise(&mut lane.connection, &acts, table, deltas).await
        })
        .await
    }
}
