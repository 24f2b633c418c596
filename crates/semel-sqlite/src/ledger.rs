//! The ledger on one SQLite file: who consumes, lanes and their fences, and what became of a lost commit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel_core::ledger::{
    CRASHED_AFTER_S, Committed, ConsumerId, Enrolled, Enrolment, Fence, Instance, LaneId, Parked,
    Reached, Resolved, SourceId, Which,
};
use semel_core::{Fault, Ledger, Limit};
use semel_sql::{Extension, Migrated};
use tokio::sync::Mutex as AsyncMutex;

use crate::link::{Args, Link, own};
use crate::migrate::{self, Mode};
use crate::options::{self, Options};
use crate::query;
use crate::record::Statements;
use crate::rows::Tables;
use crate::sql;
use crate::store::{Missing, Store, Sync};
use crate::unit::SqliteUnit;
use crate::value::Columns;

/// An idempotency ledger in a SQLite file.
#[derive(Debug, Clone)]
pub struct SqliteLedger {
    inner: Arc<Inner>,
}

/// What the ledger and its lanes share.
pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) statements: Statements,
    extensions: Vec<Extension>,
    /// The last number of each lane that this process saw committed.
    confirmed: Mutex<HashMap<LaneId, i64>>,
    /// The connection for reads between units.
    reader: AsyncMutex<Option<Link>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteLedger")
            .field("file", &self.store.file)
            .finish_non_exhaustive()
    }
}

/// A lane's connection between two units. Dropping it closes the connection.
pub struct SqliteLane {
    pub(crate) link: Link,
    pub(crate) id: LaneId,
    pub(crate) inner: Arc<Inner>,
    pub(crate) tables: Tables,
}

impl std::fmt::Debug for SqliteLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteLane")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn confirmed(&self) -> MutexGuard<'_, HashMap<LaneId, i64>> {
        self.confirmed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A fence below what was confirmed: a file put back from a copy, or changed behind our back.
    pub(crate) fn lost(&self, found: Option<i64>, confirmed: i64) -> Fault {
        let found = found.map_or_else(|| "is gone".to_owned(), |unit| format!("says {unit}"));
        Fault::stop(format!(
            "SQLite file `{}` has lost commits: a lane's fence {found}, but unit {confirmed} was confirmed; was the \
             file replaced or restored? `semel doctor` tells more",
            self.store.file.display()
        ))
    }
}

impl SqliteLedger {
    /// Opens the file and brings its tables up to date, or checks that they are.
    ///
    /// # Errors
    /// `Down` when the file cannot be opened, `Busy` when another process holds it; `Stop` when it is no database,
    /// its tables are newer than this program, or migrations are missing and not to be run.
    pub async fn open(options: Options) -> Result<Self, Fault> {
        let migrate = options.migrate;
        let ledger = Self::unchecked(options).await?;
        let plan = ledger.migrate(true).await?;
        if !plan.applied.is_empty() {
            if !migrate {
                return Err(Fault::refused(format!(
                    "SQLite file `{}` lacks {}; run `semel migrate`",
                    ledger.inner.store.file.display(),
                    plan.applied.join(", ")
                )));
            }
            ledger.migrate(false).await?;
        }
        Ok(ledger)
    }

    /// Migrates a file without a look at its tables first: what [`SqliteLedger::open`] refuses when it is told not
    /// to migrate is brought up to date here, or with `dry_run` only told.
    ///
    /// # Errors
    /// As [`SqliteLedger::open`].
    pub async fn migrate_at(options: Options, dry_run: bool) -> Result<Migrated, Fault> {
        Self::unchecked(options).await?.migrate(dry_run).await
    }

    async fn unchecked(options: Options) -> Result<Self, Fault> {
        let path = options::path_of(&options.url)?;
        let missing = if options.create {
            Missing::Create
        } else {
            Missing::Fail
        };
        let store = Store::open(path, missing, options.busy_timeout_ms).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                store,
                statements: Statements::new(),
                extensions: options.extensions,
                confirmed: Mutex::default(),
                reader: AsyncMutex::default(),
            }),
        })
    }

    /// Runs the missing migrations, or with `dry_run` only tells which. Takes the file's write lock, so two
    /// processes at once are fine.
    ///
    /// # Errors
    /// As [`SqliteLedger::open`].
    pub async fn migrate(&self, dry_run: bool) -> Result<Migrated, Fault> {
        let mode = if dry_run { Mode::Plan } else { Mode::Run };
        let _turn = self.inner.store.turn().await;
        let mut link = self.inner.store.connect(Sync::Full).await?;
        migrate::migrate(&mut link, &self.inner.extensions, mode).await
    }

    /// Forgets how far a partition was read: the next reading begins a new position. For an operator who knows that
    /// the partition holds other messages now; what was applied stays applied.
    ///
    /// # Errors
    /// `Down`, `Busy`, or `Stop` when the file is another one.
    pub async fn forget_position(
        &self,
        consumer: ConsumerId,
        source: SourceId,
        partition: &str,
    ) -> Result<(), Fault> {
        let _turn = self.inner.store.turn().await;
        let mut link = self.inner.store.connect(Sync::Full).await?;
        let args = Args::default()
            .with(consumer.0)
            .with(source.0)
            .with(partition);
        let forgotten = link.change(sql!("position_forget"), args).await;
        forgotten.map(drop).map_err(own)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    async fn enroll_in(&self, link: &mut Link, enrolment: &Enrolment) -> Result<Enrolled, Fault> {
        link.run(sql!("begin")).await?;
        let consumer = consumer(link, enrolment).await?;
        let sources = sources(link, consumer, &enrolment.sources).await?;
        link.change(sql!("fence_sweep"), Args::default().with(consumer))
            .await?;
        let clock = link.fetch(sql!("clock"), Args::default()).await?;
        let now_ms = clock
            .first()
            .ok_or_else(|| Fault::stop("the database has no time"))?
            .own::<i64>(0)?;
        let args = Args::default()
            .with(consumer)
            .with(&Instance::NO_LIFE.0[..])
            .with(i64::from(CRASHED_AFTER_S));
        let rows = link.fetch(sql!("suspects"), args).await?;
        let suspects: Result<_, _> = rows.iter().map(|row| row.own::<i16>(0)).collect();
        let suspects = suspects?;
        link.run("COMMIT").await?;
        Ok(Enrolled {
            consumer: ConsumerId(consumer),
            sources,
            now_ms: now_ms.unsigned_abs(),
            suspects,
        })
    }

    async fn resolve_in(&self, link: &mut Link, fence: Fence) -> Result<Option<i64>, Fault> {
        link.run(sql!("begin")).await?;
        let rows = link
            .fetch(sql!("fence_resolve"), lane_args(fence.lane))
            .await?;
        let unit = rows.first().map(|row| row.own::<i64>(0)).transpose()?;
        link.run("COMMIT").await?;
        Ok(unit)
    }
}

impl Ledger for SqliteLedger {
    type Lane = SqliteLane;
    type Unit = SqliteUnit;

    async fn enroll(&self, enrolment: &Enrolment) -> Result<Enrolled, Fault> {
        let _turn = self.inner.store.turn().await;
        let mut link = self.inner.store.connect(Sync::Full).await?;
        self.enroll_in(&mut link, enrolment).await.map_err(own)
    }

    async fn connect(&self, lane: LaneId) -> Result<SqliteLane, Fault> {
        let _turn = self.inner.store.turn().await;
        let mut link = self.inner.store.connect(Sync::Full).await?;
        let rows = link
            .fetch(sql!("fence_insert"), lane_args(lane))
            .await
            .map_err(own)?;
        let unit = rows.first().map(|row| row.own::<i64>(0)).transpose()?;
        let confirmed = self.inner.confirmed().get(&lane).copied().unwrap_or(0);
        if unit.is_none_or(|unit| unit < confirmed) {
            return Err(self.inner.lost(unit, confirmed));
        }
        Ok(SqliteLane {
            link,
            id: lane,
            inner: self.inner.clone(),
            tables: Tables::default(),
        })
    }

    async fn begin(&self, lane: SqliteLane) -> Result<SqliteUnit, Fault> {
        SqliteUnit::begin(lane).await
    }

    async fn resolve(&self, fence: Fence) -> Result<Resolved, Fault> {
        let _turn = self.inner.store.turn().await;
        let mut link = self.inner.store.connect(Sync::Full).await?;
        let found = self.resolve_in(&mut link, fence).await.map_err(own)?;
        let mut confirmed = self.inner.confirmed();
        let last = confirmed.entry(fence.lane).or_insert(0);
        match found {
            Some(unit) if unit == fence.unit => {
                *last = fence.unit;
                Ok(Resolved::Committed(Committed::witnessed(fence)))
            }
            Some(unit) if unit > fence.unit => Err(Fault::stop(format!(
                "the fence of a lane says {unit}, but its unit {} was not settled: another process uses this \
                 lane's identity",
                fence.unit
            ))),
            // A unit is begun on the number of the one before, which was confirmed.
            Some(unit) if unit + 1 == fence.unit && unit >= *last => Ok(Resolved::RolledBack),
            Some(_) | None => Ok(Resolved::Lost),
        }
    }

    async fn leave(&self, lane: SqliteLane) -> Result<(), Fault> {
        let SqliteLane {
            mut link,
            id,
            inner,
            ..
        } = lane;
        let _turn = inner.store.turn().await;
        // First: what is known of the row holds no more, however the change ends.
        inner.confirmed().remove(&id);
        link.change(sql!("fence_delete"), lane_args(id))
            .await
            .map_err(own)?;
        Ok(())
    }

    async fn parked(
        &self,
        consumer: ConsumerId,
        which: Which<'_>,
        limit: Limit,
    ) -> Result<Vec<Parked>, Fault> {
        let mut reader = self.inner.reader.lock().await;
        self.inner.store.unmoved()?;
        let mut link = match reader.take() {
            Some(link) => link,
            None => self.inner.store.connect(Sync::Full).await?,
        };
        let parked = query::parked(&mut link, &self.inner.statements, consumer, which, limit)
            .await
            .map_err(own)?;
        *reader = Some(link);
        Ok(parked)
    }

    async fn positions(
        &self,
        consumer: ConsumerId,
        source: SourceId,
    ) -> Result<Vec<Reached>, Fault> {
        let mut link = self.inner.store.connect(Sync::Full).await?;
        query::positions(&mut link, consumer, source)
            .await
            .map_err(own)
    }
}

/// The arguments that name a lane's fence row.
pub(crate) fn lane_args(lane: LaneId) -> Args {
    Args::default()
        .with(lane.consumer.0)
        .with(&lane.instance.0[..])
        .with(lane.lane)
}

async fn consumer(link: &mut Link, enrolment: &Enrolment) -> Result<i32, Fault> {
    let name = &*enrolment.consumer;
    let rules = enrolment.rules.as_bytes();
    let found = link
        .fetch(sql!("consumer_find"), Args::default().with(name))
        .await?;
    let Some(row) = found.first() else {
        let args = Args::default()
            .with(name)
            .with(&*enrolment.handler)
            .with(&rules[..]);
        let rows = link.fetch(sql!("consumer_insert"), args).await?;
        return rows
            .first()
            .ok_or_else(|| Fault::stop("a new consumer got no number"))?
            .own(0);
    };
    let (id, handler) = (row.own::<i32>(0)?, row.own::<&str>(1)?);
    if handler != enrolment.handler {
        return Err(Fault::stop(format!(
            "consumer `{name}` belongs to handler `{handler}`, not `{}`: under one name the second would see only \
             duplicates; give this consumer another name",
            enrolment.handler
        )));
    }
    if row.sixteen(2)? != *rules {
        if !enrolment.accept_key_change {
            return Err(Fault::stop(format!(
                "the key rules of consumer `{name}` have changed: the same operation would get another key and be \
                 applied again; change them back, or accept it with `semel migrate --accept-key-change`"
            )));
        }
        link.change(
            sql!("consumer_rules"),
            Args::default().with(id).with(&rules[..]),
        )
        .await?;
    }
    Ok(id)
}

async fn sources(link: &mut Link, consumer: i32, names: &[String]) -> Result<Vec<SourceId>, Fault> {
    let mut known = HashMap::new();
    for row in link
        .fetch(sql!("source_list"), Args::default().with(consumer))
        .await?
    {
        known.insert(row.own::<String>(1)?, row.own::<i16>(0)?);
    }
    let mut ids = Vec::with_capacity(names.len());
    for name in names {
        if let Some(id) = known.get(name) {
            ids.push(SourceId(*id));
            continue;
        }
        let last = known.values().max().copied().unwrap_or(0);
        let id = last
            .checked_add(1)
            .ok_or_else(|| Fault::stop("a consumer has at most 32 767 sources"))?;
        link.change(
            sql!("source_insert"),
            Args::default().with(consumer).with(id).with(&**name),
        )
        .await?;
        known.insert(name.clone(), id);
        ids.push(SourceId(id));
    }
    Ok(ids)
}
