//! Taking messages from the queue: leases in a task of its own, so that a dropped `receive` loses nothing, and
//! waiting for what is not there yet.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use semel_core::ledger::decode_headers;
use semel_core::message::{Message, Position};
use semel_core::{Class, Delivery, Fault, Limit, Receipt, Received};
use sqlx::sqlite::SqliteRow;
use tokio::task::JoinHandle;

use super::Inner;
use crate::link::{Args, Link, no_tail};
use crate::sql;
use crate::store::Sync;
use crate::value::Columns;

/// The shortest and longest wait between two looks at a queue that another process may fill. Within one process
/// the bell rings.
const POLL_MIN: Duration = Duration::from_millis(10);
const POLL_MAX: Duration = Duration::from_millis(200);

/// The taking side of a queue.
#[derive(Debug, Default)]
pub(super) struct Intake {
    under_way: Option<JoinHandle<Taken>>,
    link: Option<Link>,
    /// It was said that the queue is drained, and nothing was seen in it since.
    drained: bool,
}

/// What a lease task comes back with: its connection, unless that broke, and what it found.
#[derive(Debug)]
struct Taken {
    link: Option<Link>,
    found: Result<Found, Fault>,
}

#[derive(Debug)]
enum Found {
    Batch(Vec<Delivery>),
    /// Messages are there, but leased or delayed.
    Waiting,
    /// No message is left at all.
    Empty,
}

impl Intake {
    /// Cancel-safe: what a lease task took stays in `under_way` until a call hands it out.
    pub(super) async fn receive(
        &mut self,
        inner: &Arc<Inner>,
        limit: Limit,
    ) -> Result<Received, Fault> {
        let mut pause = POLL_MIN;
        loop {
            let rung = inner.store.shared.bell.notified();
            tokio::pin!(rung);
            // From here on a ring is heard, so none falls between the look and the wait.
            rung.as_mut().enable();
            match self.take(inner, limit).await {
                Ok(Found::Batch(batch)) => {
                    self.drained = false;
                    return Ok(Received::Batch(batch));
                }
                Ok(Found::Waiting) => self.drained = false,
                Ok(Found::Empty) if !self.drained => {
                    self.drained = true;
                    return Ok(Received::Drained);
                }
                Ok(Found::Empty) => {}
                // Another process writes for long; that is waiting like any other.
                Err(fault) if fault.class == Class::Busy => {}
                Err(fault) => return Err(fault),
            }
            // A ring or the end of the pause: both mean looking again.
            let _ = tokio::time::timeout(pause, rung).await;
            pause = (pause * 2).min(POLL_MAX);
        }
    }

    async fn take(&mut self, inner: &Arc<Inner>, limit: Limit) -> Result<Found, Fault> {
        let task = match &mut self.under_way {
            Some(task) => task,
            none => {
                let (inner, link) = (inner.clone(), self.link.take());
                none.insert(tokio::spawn(
                    async move { lease(&inner, link, limit).await },
                ))
            }
        };
        let ended = task.await;
        self.under_way = None;
        let taken =
            ended.map_err(|error| Fault::down(format!("a queue's lease task ended: {error}")))?;
        self.link = taken.link;
        taken.found
    }
}

async fn lease(inner: &Inner, link: Option<Link>, limit: Limit) -> Taken {
    let mut link = match link {
        Some(link) => link,
        None => match inner.store.connect(Sync::Lazy).await {
            Ok(link) => link,
            Err(fault) => {
                return Taken {
                    link: None,
                    found: Err(fault),
                };
            }
        },
    };
    match look(inner, &mut link, limit).await {
        Ok(found) => Taken {
            link: Some(link),
            found: Ok(found),
        },
        Err(fault) => Taken {
            link: None,
            found: Err(fault),
        },
    }
}

/// Looks without a lock first: an idle queue writes nothing and waits for nobody.
async fn look(inner: &Inner, link: &mut Link, limit: Limit) -> Result<Found, Fault> {
    inner.store.unmoved()?;
    if next(inner, link, 1).await?.is_empty() {
        return left(inner, link).await;
    }
    let _turn = inner.store.turn().await;
    link.run(sql!("begin")).await?;
    let mut ids = Vec::new();
    let mut bytes = 0_usize;
    for (id, size) in next(inner, link, limit.count).await? {
        bytes = bytes.saturating_add(size);
        if bytes > limit.bytes && !ids.is_empty() {
            break;
        }
        ids.push(id);
    }
    let generation = inner.generation();
    let batch = take(inner, link, &ids, generation).await?;
    link.run("COMMIT").await?;
    if batch.is_empty() {
        Ok(Found::Waiting)
    } else {
        Ok(Found::Batch(batch))
    }
}

async fn next(inner: &Inner, link: &mut Link, count: usize) -> Result<Vec<(i64, usize)>, Fault> {
    let most = i64::try_from(count.max(1)).unwrap_or(i64::MAX);
    let rows = link
        .fetch(
            sql!("queue_next"),
            Args::default().with(&*inner.name).with(most),
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok((
                row.own::<i64>(0)?,
                usize::try_from(row.own::<i64>(1)?).unwrap_or(usize::MAX),
            ))
        })
        .collect()
}

async fn left(inner: &Inner, link: &mut Link) -> Result<Found, Fault> {
    let rows = link
        .fetch(sql!("queue_left"), Args::default().with(&*inner.name))
        .await?;
    Ok(if rows.is_empty() {
        Found::Empty
    } else {
        Found::Waiting
    })
}

async fn take(
    inner: &Inner,
    link: &mut Link,
    ids: &[i64],
    generation: u64,
) -> Result<Vec<Delivery>, Fault> {
    let lease = inner.lease(generation);
    let row = |args: &mut Args, id: &i64| {
        args.push(inner.visibility_us);
        args.push(&lease[..]);
        args.push(*id);
    };
    let mut rows = link
        .fetch_all(&inner.statements.take, ids, row, no_tail)
        .await?;
    rows.sort_unstable_by_key(|row| row.own::<i64>(0).unwrap_or(i64::MAX));
    rows.iter()
        .map(|row| delivery(inner, row, generation))
        .collect()
}

fn delivery(inner: &Inner, row: &SqliteRow, generation: u64) -> Result<Delivery, Fault> {
    let broken =
        || Fault::stop("a queued message cannot be read; its headers or number are not as written");
    let offset = u64::try_from(row.own::<i64>(0)?).map_err(|_| broken())?;
    let tag = NonZeroU64::new(offset).ok_or_else(broken)?;
    let message = Message {
        payload: row.bytes(5)?,
        cut: None,
        headers: decode_headers(row.own(3)?).ok_or_else(broken)?,
        position: Position {
            partition: inner.name.clone(),
            offset: Some(offset),
        },
        message_key: row.bytes(4)?,
        attempt: row.own(1)?,
        timestamp_ms: Some(row.own::<i64>(2)? / 1000),
    };
    Ok(Delivery {
        receipt: Receipt::new(generation, 0, tag),
        message,
        mark: None,
    })
}
