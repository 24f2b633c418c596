//! The ledger's small calls outside of units: enrolling consumers, reading parked messages and positions.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::ledger::{
    CRASHED_AFTER_S, ConsumerId, Enrolled, Enrolment, Instance, Parked, Reached, SourceId, Which,
    decode_headers,
};
use semel_core::{Fault, Key, Limit, Message, Position};
use sqlx::Row;
use sqlx::postgres::{PgBindIterExt, PgRow};
use sqlx::types::Uuid;

use crate::fault::fault;
use crate::session::Session;
use crate::sql;
use crate::value::{Instant, key, uuid};

/// Registers a consumer and its sources; the caller's transaction holds them together.
pub(crate) async fn enroll(
    connection: &mut Session,
    enrolment: &Enrolment,
) -> Result<Enrolled, Fault> {
    let consumer = consumer(connection, enrolment).await?;
    let sources = sources(connection, consumer, &enrolment.sources).await?;
    let sweep = sqlx::query(sql!("fence_sweep")).bind(consumer.0);
    sweep.execute(&mut *connection).await.map_err(fault)?;
    let now = sqlx::query(sql!("now"))
        .fetch_one(&mut *connection)
        .await
        .and_then(|row| row.try_get(0));
    let Instant(now_us) = now.map_err(fault)?;
    let suspects = suspects(connection, consumer).await?;
    Ok(Enrolled {
        consumer,
        sources,
        now_ms: u64::try_from(now_us / 1_000).unwrap_or(0),
        suspects,
    })
}

async fn suspects(connection: &mut Session, consumer: ConsumerId) -> Result<Vec<i16>, Fault> {
    let lanes = sqlx::query_scalar(sql!("suspects"))
        .bind(consumer.0)
        .bind(Uuid::from_bytes(Instance::NO_LIFE.0))
        .bind(f64::from(CRASHED_AFTER_S))
        .fetch_all(connection)
        .await;
    lanes.map_err(fault)
}

async fn consumer(connection: &mut Session, enrolment: &Enrolment) -> Result<ConsumerId, Fault> {
    let name = &enrolment.consumer;
    let rules = Uuid::from_bytes(enrolment.rules.into_bytes());
    let find = async |connection: &mut Session| {
        let row = sqlx::query(sql!("consumer_find"))
            .bind(name)
            .fetch_optional(connection)
            .await;
        row.map_err(fault)
    };
    let row = match find(connection).await? {
        Some(row) => row,
        None => {
            sqlx::query(sql!("consumer_insert"))
                .bind(name)
                .bind(&enrolment.handler)
                .bind(rules)
                .execute(&mut *connection)
                .await
                .map_err(fault)?;
            let row = find(connection).await?;
            row.ok_or_else(|| {
                Fault::busy(format!("consumer `{name}` was deleted while it enrolled"))
            })?
        }
    };
    let id: i32 = row.try_get(0).map_err(fault)?;
    let handler: String = row.try_get(1).map_err(fault)?;
    let stored: Uuid = row.try_get(2).map_err(fault)?;
    if handler != enrolment.handler {
        return Err(Fault::stop(format!(
            "consumer `{name}` belongs to handler `{handler}`, not to `{}`: its keys would be taken for this one's; \
             choose another consumer name",
            enrolment.handler
        )));
    }
    if stored != rules {
        accept(connection, id, rules, enrolment).await?;
    }
    Ok(ConsumerId(id))
}

async fn accept(
    connection: &mut Session,
    id: i32,
    rules: Uuid,
    enrolment: &Enrolment,
) -> Result<(), Fault> {
    if !enrolment.accept_key_change {
        return Err(Fault::stop(format!(
            "the key rules of consumer `{}` changed: old operations that come again would get new keys and be applied \
             twice; undo the change, or accept it with `semel migrate --accept-key-change`",
            enrolment.consumer
        )));
    }
    let query = sqlx::query(sql!("consumer_rules")).bind(id).bind(rules);
    query.execute(connection).await.map(drop).map_err(fault)
}

/// The numbers of sources in the order of `names`; new names get the next numbers.
async fn sources(
    connection: &mut Session,
    consumer: ConsumerId,
    names: &[String],
) -> Result<Vec<SourceId>, Fault> {
    let rows = sqlx::query(sql!("source_list"))
        .bind(consumer.0)
        .fetch_all(&mut *connection)
        .await
        .map_err(fault)?;
    let mut known: Vec<(i16, String)> = Vec::new();
    for row in &rows {
        known.push((
            row.try_get(0).map_err(fault)?,
            row.try_get(1).map_err(fault)?,
        ));
    }
    let stored = known.len();
    let mut numbers = Vec::with_capacity(names.len());
    for name in names {
        let number = match known.iter().find(|(_, n)| n == name) {
            Some((number, _)) => *number,
            None => {
                let next = known
                    .iter()
                    .map(|(n, _)| *n)
                    .max()
                    .unwrap_or(0)
                    .checked_add(1);
                let next = next.ok_or_else(|| {
                    Fault::stop("a consumer has at most 32767 sources in its life")
                })?;
                known.push((next, name.clone()));
                next
            }
        };
        numbers.push(SourceId(number));
    }
    let new = &known[stored..];
    if !new.is_empty() {
        sqlx::query(sql!("source_insert"))
            .bind(consumer.0)
            .bind(new.iter().map(|(n, _)| *n).bind_iter())
            .bind(new.iter().map(|(_, n)| n).bind_iter())
            .execute(connection)
            .await
            .map_err(fault)?;
    }
    Ok(numbers)
}

/// Parked messages in key order.
pub(crate) async fn parked(
    connection: &mut Session,
    consumer: ConsumerId,
    which: Which<'_>,
    limit: Limit,
) -> Result<Vec<Parked>, Fault> {
    let most = i64::try_from(limit.count).unwrap_or(i64::MAX);
    let uuids = |keys: &[Key]| keys.iter().map(|k| uuid(*k)).collect::<Vec<_>>();
    let query = match which {
        Which::Keys([]) | Which::Awaiting([]) => return Ok(Vec::new()),
        Which::Keys(wanted) => return whole(connection, consumer, uuids(wanted), limit).await,
        Which::Awaiting(wanted) => sqlx::query(sql!("parked_awaiting"))
            .bind(consumer.0)
            .bind(uuids(wanted)),
        Which::Due(after) => sqlx::query(sql!("parked_due"))
            .bind(consumer.0)
            .bind(after.map(uuid)),
        Which::After(after) => sqlx::query(sql!("parked_after"))
            .bind(consumer.0)
            .bind(after.map(uuid)),
    };
    let rows = query
        .bind(most)
        .fetch_all(&mut *connection)
        .await
        .map_err(fault)?;
    let sizes = rows.iter().map(size_row).collect::<Result<Vec<_>, _>>();
    let sizes = sizes.map_err(fault)?;
    let kept = limit.lets_through(sizes.iter().map(|(_, size)| *size));
    if kept == 0 {
        return Ok(Vec::new());
    }
    let found = sizes[..kept].iter().map(|(key, _)| *key).collect();
    whole(connection, consumer, found, limit).await
}

fn size_row(row: &PgRow) -> Result<(Uuid, usize), sqlx::Error> {
    let stored: i32 = row.try_get("size")?;
    let stored = usize::try_from(stored).unwrap_or(0);
    Ok((row.try_get("key")?, stored + Message::OVERHEAD_BYTES))
}

/// The parked messages of these keys.
async fn whole(
    connection: &mut Session,
    consumer: ConsumerId,
    keys: Vec<Uuid>,
    limit: Limit,
) -> Result<Vec<Parked>, Fault> {
    let query = sqlx::query(sql!("parked_keys")).bind(consumer.0).bind(keys);
    let rows = query.fetch_all(connection).await.map_err(fault)?;
    let mut parked = rows.iter().map(parked_row).collect::<Result<Vec<_>, _>>()?;
    parked.truncate(limit.lets_through(parked.iter().map(|p| p.message.size())));
    Ok(parked)
}

fn parked_row(row: &PgRow) -> Result<Parked, Fault> {
    let fields = || -> Result<(Parked, Vec<u8>), sqlx::Error> {
        let identity: Uuid = row.try_get("key")?;
        let attempts: i32 = row.try_get("attempts")?;
        let offset: Option<i64> = row.try_get("position")?;
        let bytes = |name| {
            Ok::<_, sqlx::Error>(
                row.try_get::<Option<&[u8]>, _>(name)?
                    .map(Bytes::copy_from_slice),
            )
        };
        let message = Message {
            payload: bytes("payload")?,
            cut: None,
            headers: Arc::new([]),
            position: Position {
                partition: row.try_get::<&str, _>("partition")?.into(),
                offset: offset.and_then(|o| u64::try_from(o).ok()),
            },
            message_key: bytes("message_key")?,
            attempt: 1,
            timestamp_ms: row.try_get("timestamp_ms")?,
        };
        let parked = Parked {
            key: key(identity),
            id: row.try_get("id")?,
            message,
            source: SourceId(row.try_get("source")?),
            attempts: u32::try_from(attempts).unwrap_or(0),
            last: row.try_get("last")?,
        };
        Ok((parked, row.try_get("headers")?))
    };
    let (mut parked, headers) = fields().map_err(fault)?;
    parked.message.headers = decode_headers(&headers).ok_or_else(|| {
        Fault::stop(format!(
            "the stored headers of parked message {} are damaged",
            parked.key
        ))
    })?;
    Ok(parked)
}

/// A source's positions: per partition the highest of its lanes.
pub(crate) async fn positions(
    connection: &mut Session,
    consumer: ConsumerId,
    source: SourceId,
) -> Result<Vec<Reached>, Fault> {
    let rows = sqlx::query(sql!("positions"))
        .bind(consumer.0)
        .bind(source.0)
        .fetch_all(connection)
        .await
        .map_err(fault)?;
    let reached = |row: &PgRow| -> Result<Reached, sqlx::Error> {
        let next: i64 = row.try_get(1)?;
        Ok(Reached {
            source,
            partition: row.try_get::<&str, _>(0)?.into(),
            next: u64::try_from(next).unwrap_or(0),
            mark: Bytes::copy_from_slice(row.try_get(2)?),
        })
    };
    rows.iter().map(|row| reached(row).map_err(fault)).collect()
}
