//! The ledger's door: settings, lanes and their fences. A lane owns one connection from here to its last unit.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use semel_core::ledger::{
    ConsumerId, Enrolled, Enrolment, Fence, Instance, LaneId, Parked, Reached, Resolved, SourceId,
    Which,
};
use semel_core::{Fault, Ledger, Limit};
use semel_sql::Migrated;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use crate::claim::Manner;
use crate::fault::{fault, has_code, is_lock_timeout, own};
use crate::options::Options;
use crate::pooler::UnknownPooler;
use crate::rows::Statements;
use crate::session::{self, Purpose, Session, Span};
use crate::sql;
use crate::unit::PostgresUnit;
use crate::{operators, resolve};

/// What all lanes of one ledger share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    /// The highest number of each lane that the database confirmed in this process: a fence below it means
    /// that the database lost commits.
    confirmed: Mutex<HashMap<LaneId, i64>>,
    /// Statements for the user's tables, made once.
    pub(crate) statements: Statements,
    /// A session for the ledger's own small calls; taken out while one runs, so that a dropped call loses it.
    desk: Mutex<Option<Session>>,
    pub(crate) manner: Manner,
}

impl Shared {
    pub(crate) fn confirmed(&self, lane: LaneId) -> i64 {
        *self
            .confirmed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&lane)
            .unwrap_or(&0)
    }

    pub(crate) fn confirm(&self, fence: Fence) {
        let mut confirmed = self
            .confirmed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = confirmed.entry(fence.lane).or_insert(0);
        *known = fence.unit.max(*known);
    }

    fn forget(&self, lane: LaneId) {
        self.confirmed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&lane);
    }

    /// Runs a small call on the desk's session, which is kept only when it went well.
    pub(crate) async fn at_desk<T>(
        &self,
        what: &str,
        span: Span,
        call: impl AsyncFnOnce(&mut Session) -> Result<T, Fault> + Send,
    ) -> Result<T, Fault>
    where
        T: Send,
    {
        let limit = self.options.call_limit_ms();
        let kept = self
            .desk
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        session::within(limit, what, async {
            let mut connection = match kept {
                Some(connection) => connection,
                None => session::open(&self.options, Purpose::Work).await?,
            };
            connection.begin(span).await.map_err(fault)?;
            let answer = call(&mut connection).await?;
            connection.commit(span).await.map_err(fault)?;
            *self.desk.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
            Ok(answer)
        })
        .await
    }
}

/// An idempotency ledger in a PostgreSQL database.
#[derive(Clone)]
pub struct PostgresLedger {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for PostgresLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresLedger")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl PostgresLedger {
    /// Opens the ledger: finds the primary, and migrates the schema or checks that it is up to date.
    ///
    /// # Errors
    /// `Down` when the database is away; `Stop` when the schema is newer than this program, or older and may not
    /// be migrated ([`Options::migrate`]), or the URL is none.
    pub async fn open(options: Options) -> Result<Self, Fault> {
        let ledger = Self::unchecked(options);
        let pending = ledger.migrate(true).await?.applied;
        if pending.is_empty() {
            return Ok(ledger);
        }
        if !ledger.shared.options.migrate {
            return Err(Fault::refused(format!(
                "the schema lacks {}; run `semel migrate`",
                pending.join(", ")
            )));
        }
        ledger.migrate(false).await?;
        Ok(ledger)
    }

    /// Migrates a schema without a look at its tables first: what [`PostgresLedger::open`] refuses when it is told
    /// not to migrate is brought up to date here, or with `dry_run` only told.
    ///
    /// # Errors
    /// As [`PostgresLedger::open`].
    pub async fn migrate_at(options: Options, dry_run: bool) -> Result<Migrated, Fault> {
        Self::unchecked(options).migrate(dry_run).await
    }

    /// Forgets how far a partition was read: the next reading begins a new position. For an operator who knows that
    /// the partition holds other messages now; what was applied stays applied.
    ///
    /// # Errors
    /// `Down` when the database is away.
    pub async fn forget_position(
        &self,
        consumer: ConsumerId,
        source: SourceId,
        partition: &str,
    ) -> Result<(), Fault> {
        self.shared
            .at_desk("forgetting a position", Span::Each, async |connection| {
                let forget = sqlx::query(sql!("position_forget"))
                    .bind(consumer.0)
                    .bind(source.0)
                    .bind(partition);
                forget.execute(connection).await.map(drop).map_err(fault)
            })
            .await
    }

    async fn set_up(&self, lane: LaneId) -> Result<PostgresLane, Fault> {
        let mut connection = session::open(&self.shared.options, Purpose::Work).await?;
        ensure_fence(&mut connection, lane).await?;
        connection.name(lane).await?;
        Ok(PostgresLane {
            connection,
            id: lane,
            shared: Arc::clone(&self.shared),
            units: 0,
        })
    }

    fn unchecked(options: Options) -> Self {
        let shared = Shared {
            options,
            confirmed: Mutex::default(),
            statements: Statements::default(),
            desk: Mutex::default(),
            manner: Manner::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

/// One lane's connection, between units.
pub struct PostgresLane {
    pub(crate) connection: Session,
    pub(crate) id: LaneId,
    pub(crate) shared: Arc<Shared>,
    /// Units begun on this connection.
    pub(crate) units: u64,
}

impl fmt::Debug for PostgresLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresLane")
            .field("id", &self.id)
            .field("units", &self.units)
            .finish_non_exhaustive()
    }
}

impl PostgresLane {
    /// Whether this unit should forget the session's plans. Often while tables are young, seldom later: at every
    /// power of two, and at every 1024th unit.
    fn replans(&self) -> bool {
        self.units.is_power_of_two() || self.units.is_multiple_of(1024)
    }

    async fn raise_fence(&mut self) -> Result<Fence, Fault> {
        let id = self.id;
        let raised = match self.connection.raise(self.replans()).await {
            // This session never prepared it, or the unit before let a handler forget it; or it does not know the lane's
            // name, wholly or any more.
            Err(error)
                if ["26000", "42704", "22P02"]
                    .iter()
                    .any(|code| has_code(&error, code)) =>
            {
                return Err(Fault::refused(UnknownPooler));
            }
            raised => raised.map_err(fault).map_err(own)?,
        };
        let unit = match raised {
            Some(row) if whose(&row).map_err(fault).map_err(own)? != id => {
                return Err(Fault::refused(UnknownPooler));
            }
            Some(row) => row.try_get("unit").map_err(fault).map_err(own)?,
            None => 0,
        };
        let confirmed = self.shared.confirmed(id);
        if unit <= confirmed {
            return Err(Fault::stop(format!(
                "the database lost commits: lane {} of consumer {} was confirmed up to unit {confirmed}, its fence \
                 {}; stop, and compare the broker's positions with the ledger's (`semel doctor`)",
                id.lane,
                id.consumer.0,
                if unit == 0 {
                    "is gone".to_owned()
                } else {
                    format!("says {}", unit - 1)
                },
            )));
        }
        Ok(Fence { lane: id, unit })
    }
}

/// Whose fence it is that was raised: the session may have been lent to another lane.
fn whose(row: &PgRow) -> Result<LaneId, sqlx::Error> {
    let instance: Uuid = row.try_get("instance")?;
    Ok(LaneId {
        consumer: ConsumerId(row.try_get("consumer")?),
        instance: Instance(instance.into_bytes()),
        lane: row.try_get("lane")?,
    })
}

/// Makes sure that the lane's fence row exists. A silent session that still holds it (a half-open connection of
/// this lane, given up while it began a unit) is ended.
async fn ensure_fence(connection: &mut Session, lane: LaneId) -> Result<(), Fault> {
    match insert_fence(connection, lane).await {
        Err(error) if is_lock_timeout(&error) => {}
        other => return other.map_err(fault),
    }
    resolve::evict(connection, lane).await?;
    insert_fence(connection, lane).await.map_err(fault)
}

async fn insert_fence(connection: &mut Session, lane: LaneId) -> Result<(), sqlx::Error> {
    connection.begin(Span::Each).await?;
    let inserted = sqlx::query(sql!("fence_insert"))
        .persistent(false)
        .bind(lane.consumer.0)
        .bind(Uuid::from_bytes(lane.instance.0))
        .bind(lane.lane)
        .execute(&mut *connection)
        .await;
    connection.ended(Span::Each, inserted).await.map(drop)
}

/// Deletes a lane's fence row, if there is one.
async fn delete_fence(connection: &mut Session, id: LaneId) -> sqlx::Result<()> {
    let instance = Uuid::from_bytes(id.instance.0);
    let seen: Option<String> = sqlx::query_scalar(sql!("fence_seen"))
        .bind(id.consumer.0)
        .bind(instance)
        .bind(id.lane)
        .fetch_optional(&mut *connection)
        .await?;
    let delete = sqlx::query(sql!("fence_delete"))
        .bind(id.consumer.0)
        .bind(instance)
        .bind(id.lane)
        .bind(seen);
    delete.execute(&mut *connection).await.map(drop)
}

impl Ledger for PostgresLedger {
    type Lane = PostgresLane;
    type Unit = PostgresUnit;

    async fn enroll(&self, enrolment: &Enrolment) -> Result<Enrolled, Fault> {
        self.shared
            .at_desk("enrolling", Span::Whole, async |connection| {
                operators::enroll(connection, enrolment).await
            })
            .await
    }

    async fn connect(&self, lane: LaneId) -> Result<PostgresLane, Fault> {
        let limit = self.shared.options.call_limit_ms();
        session::within(limit, "setting up a lane", self.set_up(lane)).await
    }

    async fn begin(&self, mut lane: PostgresLane) -> Result<PostgresUnit, Fault> {
        lane.units += 1;
        let fence = lane.raise_fence().await?;
        Ok(PostgresUnit::new(lane, fence))
    }

    fn resolve(&self, fence: Fence) -> impl Future<Output = Result<Resolved, Fault>> + Send {
        resolve::resolve(&self.shared, fence)
    }

    async fn leave(&self, mut lane: PostgresLane) -> Result<(), Fault> {
        let id = lane.id;
        // First: once the DELETE is sent, what is known of the row holds no more, whether or not an answer comes.
        self.shared.forget(id);
        let limit = self.shared.options.call_limit_ms();
        session::within(limit, "leaving a lane", async {
            lane.connection.begin(Span::Each).await.map_err(fault)?;
            let deleted = delete_fence(&mut lane.connection, id).await;
            let ended = lane.connection.ended(Span::Each, deleted).await;
            ended.map_err(fault)
        })
        .await?;
        lane.connection.close().await;
        Ok(())
    }

    async fn parked(
        &self,
        consumer: ConsumerId,
        which: Which<'_>,
        limit: Limit,
    ) -> Result<Vec<Parked>, Fault> {
        self.shared
            .at_desk("reading parked messages", Span::Each, async |connection| {
                operators::parked(connection, consumer, which, limit).await
            })
            .await
    }

    async fn positions(
        &self,
        consumer: ConsumerId,
        source: SourceId,
    ) -> Result<Vec<Reached>, Fault> {
        self.shared
            .at_desk("reading positions", Span::Each, async |connection| {
                operators::positions(connection, consumer, source).await
            })
            .await
    }
}
