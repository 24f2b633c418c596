//! The embedded queue, on whichever database its URL names.

use std::sync::Arc;

use semel_core::{Fault, Sink};
use semel_postgres::PostgresQueue;
use semel_sqlite::SqliteQueue;

use super::Opened;
use crate::config::{Loaded, Queue};
use crate::dialect::Dialect;
use crate::exit::Failure;
use crate::ledger::{Place, Tables};

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
