//! Reads beside the units: parked messages, positions, and operators' queries. On connections of their own; in
//! WAL mode a reader waits for nobody and nobody waits for it.

use std::sync::Arc;

use futures_util::TryStreamExt;
use semel_core::ledger::{ConsumerId, Parked, Reached, SourceId, Which, decode_headers};
use semel_core::message::{Message, Position};
use semel_core::rows::{Query, Register, Value};
use semel_core::{Fault, Key, Limit};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::ledger::SqliteLedger;
use crate::link::{Args, Link, fixed, no_tail};
use crate::record::{Statements, key_row};
use crate::sql;
use crate::store::Sync;
use crate::value::{self, Columns};

/// Parked messages, in key order: first their keys and sizes, then the content of those within the limit.
pub(crate) async fn parked(
    link: &mut Link,
    statements: &Statements,
    consumer: ConsumerId,
    which: Which<'_>,
    limit: Limit,
) -> Result<Vec<Parked>, Fault> {
    let most = i64::try_from(limit.count).unwrap_or(i64::MAX);
    let row = |args: &mut Args, key: &Key| {
        args.push(consumer.0);
        key_row(args, key);
    };
    let rows = match which {
        Which::Keys(_) => Vec::new(),
        Which::Awaiting(keys) => {
            link.fetch_all(&statements.parked_awaiting, keys, row, |args| {
                args.push(most)
            })
            .await?
        }
        Which::Due(key) | Which::After(key) => {
            let sql = match which {
                Which::Due(_) => sql!("parked_due"),
                _ => sql!("parked_after"),
            };
            let after = key.as_ref().map_or(&[][..], |key| &key.as_bytes()[..]);
            let args = Args::default().with(consumer.0).with(after).with(most);
            link.fetch(fixed(sql), args).await?
        }
    };
    let mut sizes = rows.iter().map(size_row).collect::<Result<Vec<_>, _>>()?;
    sizes.sort_unstable();
    let kept = limit.lets_through(sizes.iter().map(|(_, size)| *size));
    let found: Vec<Key> = sizes[..kept].iter().map(|(key, _)| *key).collect();
    let keys = match which {
        Which::Keys(keys) => keys,
        Which::Awaiting(_) | Which::Due(_) | Which::After(_) => &found,
    };
    let rows = link
        .fetch_all(&statements.parked_keys, keys, row, no_tail)
        .await?;
    let mut parked = rows.iter().map(parked_row).collect::<Result<Vec<_>, _>>()?;
    parked.sort_unstable_by_key(|parked| parked.key);
    parked.truncate(limit.lets_through(parked.iter().map(|p| p.message.size())));
    Ok(parked)
}

fn size_row(row: &SqliteRow) -> Result<(Key, usize), Fault> {
    let stored = usize::try_from(row.own::<i64>(1)?).unwrap_or(usize::MAX);
    let key = Key::from_bytes(row.sixteen(0)?);
    Ok((key, stored.saturating_add(Message::OVERHEAD_BYTES)))
}

fn parked_row(row: &SqliteRow) -> Result<Parked, Fault> {
    let headers = decode_headers(row.own(6)?)
        .ok_or_else(|| Fault::stop("a parked message has broken headers"))?;
    let message = Message {
        payload: row.bytes(9)?,
        cut: None,
        headers,
        position: Position {
            partition: Arc::from(row.own::<&str>(4)?),
            offset: row.own::<Option<i64>>(5)?.map(i64::cast_unsigned),
        },
        message_key: row.bytes(7)?,
        attempt: 1,
        timestamp_ms: row.own(8)?,
    };
    Ok(Parked {
        key: Key::from_bytes(row.sixteen(0)?),
        id: row.own(10)?,
        message,
        source: SourceId(row.own(1)?),
        attempts: row.own(2)?,
        last: row.own(3)?,
    })
}

/// The positions of a source.
pub(crate) async fn positions(
    link: &mut Link,
    consumer: ConsumerId,
    source: SourceId,
) -> Result<Vec<Reached>, Fault> {
    let rows = link
        .fetch(
            sql!("positions"),
            Args::default().with(consumer.0).with(source.0),
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(Reached {
                source,
                partition: Arc::from(row.own::<&str>(0)?),
                next: row.own::<i64>(1)?.cast_unsigned(),
                mark: row.bytes(2)?.unwrap_or_default(),
            })
        })
        .collect()
}

impl Query for SqliteLedger {
    async fn query(
        &self,
        sql: &'static str,
        args: &[Value],
        each: &mut (dyn FnMut(&[Value]) -> bool + Send),
    ) -> Result<(), Fault> {
        let mut link = self.store().connect(Sync::Full).await?;
        let mut bound = Args::default();
        args.iter().for_each(|arg| value::push(&mut bound, arg));
        let stopped = stream(&mut link, sql, bound, each).await;
        // The connection is dropped here, and with it what `each` did not want to see.
        match stopped {
            Ok(()) => Ok(()),
            Err(Stopped::Fault(fault)) => Err(fault),
            Err(Stopped::Store(error)) => Err(link.note(error)),
        }
    }
}

impl Register for SqliteLedger {
    async fn register(&self, sql: &'static str, args: &[Value]) -> Result<(), Fault> {
        let _turn = self.store().turn().await;
        let mut link = self.store().connect(Sync::Full).await?;
        let mut bound = Args::default();
        args.iter().for_each(|arg| value::push(&mut bound, arg));
        link.change(sql, bound).await.map(drop)
    }
}

enum Stopped {
    Fault(Fault),
    Store(sqlx::Error),
}

async fn stream(
    link: &mut Link,
    sql: &'static str,
    args: Args,
    each: &mut (dyn FnMut(&[Value]) -> bool + Send),
) -> Result<(), Stopped> {
    let mut rows = sqlx::query_with(sql, args.into_inner()).fetch(&mut link.connection);
    let mut values = Vec::new();
    while let Some(row) = rows.try_next().await.map_err(Stopped::Store)? {
        values.clear();
        for at in 0..row.len() {
            values.push(value::read_any(&row, at).map_err(Stopped::Fault)?);
        }
        if !each(&values) {
            break;
        }
    }
    Ok(())
}
