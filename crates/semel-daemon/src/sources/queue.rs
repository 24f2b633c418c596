//! The embedded queue, on whichever database its URL names.

use std::sync::Arc;

use semel_core::rows::{Query, Value};
use semel_core::source::BoxFuture;
use semel_core::{Fault, Sink};
use semel_postgres::{PostgresLedger, PostgresQueue};
use semel_sqlite::{SqliteLedger, SqliteQueue};

use super::Opened;
use crate::check::Finding;
use crate::config::{self, Loaded, Queue};
use crate::dialect::Dialect;
use crate::doctor::{Reading, Standing};
use crate::exit::Failure;
use crate::http::{Lag, Pulse};
use crate::inspect::{Cells, Statements};
use crate::ledger::{Ledger, Place, Tables, on_ledger};

enum AnyQueue {
    Sqlite(SqliteQueue),
    Postgres(PostgresQueue),
}

pub(super) async fn open(
    loaded: &Loaded,
    settings: &Queue,
) -> Result<Result<Opened, Fault>, Failure> {
    Ok(queue(loaded, settings).await?.map(|queue| match queue {
        AnyQueue::Sqlite(queue) => Opened::plain(queue),
        AnyQueue::Postgres(queue) => Opened::plain(queue),
    }))
}

pub(super) async fn sink(
    loaded: &Loaded,
    settings: &Queue,
) -> Result<Result<Arc<dyn Sink>, Fault>, Failure> {
    Ok(queue(loaded, settings).await?.map(|queue| match queue {
        AnyQueue::Sqlite(queue) => Arc::new(queue) as Arc<dyn Sink>,
        AnyQueue::Postgres(queue) => Arc::new(queue),
    }))
}

/// What tells whether the queue's table is there, by a connection of its own.
pub(super) async fn pulse(loaded: &Loaded, settings: &Queue) -> Result<Arc<dyn Pulse>, Failure> {
    let ledger = &loaded.config.ledger;
    let place = Place::of(settings.url.as_ref().unwrap_or(&ledger.url), &loaded.base)?;
    let tables = tables(&place, ledger)
        .await
        .map_err(|fault| Failure::fault("the queue's database", &fault))?;
    Ok(Arc::new(Rows {
        sql: Statements::of(place.dialect).queue_count,
        name: settings.name.clone(),
        tables,
    }))
}

/// The tables of a queue's database: the wallet's need not be among them.
async fn tables(place: &Place, settings: &config::Ledger) -> Result<Ledger, Fault> {
    Ok(match place.dialect {
        Dialect::Sqlite => {
            let mut options = place.sqlite(settings, Tables::AsTheyAre);
            options.extensions.clear();
            Ledger::Sqlite(SqliteLedger::open(options).await?)
        }
        Dialect::Postgres => {
            let mut options = place.postgres(settings, Tables::AsTheyAre);
            options.extensions.clear();
            Ledger::Postgres(PostgresLedger::open(options).await?)
        }
    })
}

/// What waits in the queue.
pub(super) async fn examine(
    loaded: &Loaded,
    reading: &Reading<'_>,
    settings: &Queue,
) -> (Vec<Standing>, Vec<Finding>) {
    let lags = match pulse(loaded, settings).await {
        Ok(pulse) => pulse.beat().await,
        Err(failure) => Err(failure.lines.join("; ")),
    };
    match lags {
        Err(why) => (Vec::new(), vec![super::away(loaded, reading, why)]),
        Ok(lags) => {
            let ready = |lag: &Lag| match lag {
                Lag::Messages(_, count) | Lag::Bytes(_, count) => *count,
            };
            let place = Standing {
                consumer: reading.consumer.to_owned(),
                source: reading.source.to_owned(),
                partition: settings.name.clone(),
                ready: lags.first().map(ready),
                ..Standing::default()
            };
            (vec![place], Vec::new())
        }
    }
}

/// The rows of a queue.
struct Rows {
    tables: Ledger,
    sql: &'static str,
    name: String,
}

impl Pulse for Rows {
    fn beat(&self) -> BoxFuture<'_, Result<Vec<Lag>, String>> {
        Box::pin(async move {
            let args = [Value::Text(self.name.as_str().into())];
            let mut count = 0;
            let mut each = |row: &[Value]| {
                count = Cells::new(row).int().unwrap_or(0);
                true
            };
            on_ledger!(&self.tables, tables => tables.query(self.sql, &args, &mut each).await)
                .map_err(|fault| fault.detail())?;
            let count = u64::try_from(count).unwrap_or(0);
            Ok(vec![Lag::Messages(self.name.clone(), count)])
        })
    }
}

async fn queue(loaded: &Loaded, settings: &Queue) -> Result<Result<AnyQueue, Fault>, Failure> {
    let ledger = &loaded.config.ledger;
    let place = Place::of(settings.url.as_ref().unwrap_or(&ledger.url), &loaded.base)?;
    let visibility_ms = settings.lease_ms;
    Ok(match place.dialect {
        Dialect::Sqlite => {
            let file = place.sqlite(ledger, Tables::Ready);
            let options = semel_sqlite::QueueOptions {
                visibility_ms,
                busy_timeout_ms: file.busy_timeout_ms,
                ..semel_sqlite::QueueOptions::new(file.url, &settings.name)
            };
            SqliteQueue::open(options).await.map(AnyQueue::Sqlite)
        }
        Dialect::Postgres => {
            let lease = semel_postgres::QueueOptions { visibility_ms };
            PostgresQueue::open(place.postgres(ledger, Tables::Ready), &settings.name, lease)
                .await
                .map(AnyQueue::Postgres)
        }
    })
}
