//! The queue's statements: take, ask what is left, ack, nack, put.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::ledger::decode_headers;
use semel_core::source::Limit;
use semel_core::{Fault, Message, Outgoing, Position};
use sqlx::Row;
use sqlx::postgres::{PgBindIterExt, PgRow};
use sqlx::types::Uuid;

use super::{fault, stamped};
use crate::session::Session;
use crate::sql;
use crate::value::Instant;

/// The longest delay of a nack, ms: a year.
const DELAY_MS_MAX: i64 = 365 * 86_400_000;

/// A leased row.
pub(super) struct Taken {
    pub(super) id: i64,
    pub(super) attempt: u32,
    enqueued: Instant,
    headers: Vec<u8>,
    message_key: Option<Bytes>,
    payload: Option<Bytes>,
}

impl Taken {
    fn of(row: &PgRow) -> Result<Self, sqlx::Error> {
        let attempt: i32 = row.try_get(1)?;
        let bytes = |place: usize| {
            Ok::<_, sqlx::Error>(
                row.try_get::<Option<&[u8]>, _>(place)?
                    .map(Bytes::copy_from_slice),
            )
        };
        Ok(Self {
            id: row.try_get(0)?,
            attempt: u32::try_from(attempt).unwrap_or(0),
            enqueued: row.try_get(2)?,
            headers: row.try_get(3)?,
            message_key: bytes(4)?,
            payload: bytes(5)?,
        })
    }

    pub(super) fn message(self, queue: &Arc<str>, offset: u64) -> Result<Message, Fault> {
        let headers = decode_headers(&self.headers).ok_or_else(|| {
            Fault::stop(format!(
                "the stored headers of queue row {offset} are damaged"
            ))
        })?;
        Ok(Message {
            payload: self.payload,
            cut: None,
            headers,
            position: Position {
                partition: Arc::clone(queue),
                offset: Some(offset),
            },
            message_key: self.message_key,
            attempt: self.attempt,
            timestamp_ms: Some(self.enqueued.0.div_euclid(1_000)),
        })
    }
}

/// Leases what is visible, in the order of ids.
pub(super) async fn take(
    connection: &mut Session,
    queue: &str,
    lease: Uuid,
    visibility_ms: u64,
    limit: Limit,
) -> Result<Vec<Taken>, Fault> {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let rows = sqlx::query(sql!("queue_take"))
        .bind(queue)
        .bind(i64::try_from(limit.count.max(1)).unwrap_or(i64::MAX))
        .bind(i64::try_from(limit.bytes).unwrap_or(i64::MAX))
        .bind(lease)
        .bind(signed(visibility_ms).min(DELAY_MS_MAX))
        .fetch_all(connection)
        .await
        .map_err(fault)?;
    let mut taken = rows
        .iter()
        .map(Taken::of)
        .collect::<Result<Vec<_>, _>>()
        .map_err(fault)?;
    // The update gives rows back in the planner's order.
    taken.sort_unstable_by_key(|taken| taken.id);
    Ok(taken)
}

/// Whether any row is left, leased or not.
pub(super) async fn left(connection: &mut Session, queue: &str) -> Result<bool, Fault> {
    let row = sqlx::query(sql!("queue_left"))
        .bind(queue)
        .fetch_one(connection)
        .await;
    row.and_then(|row| row.try_get(0)).map_err(fault)
}

/// Deletes what is done; how many leases were still ours.
pub(super) async fn acks(
    connection: &mut Session,
    lease: Uuid,
    done: &[(i64, i32)],
) -> Result<usize, Fault> {
    if done.is_empty() {
        return Ok(0);
    }
    let deleted = sqlx::query(sql!("queue_ack"))
        .bind(lease)
        .bind(done.iter().map(|d| d.0).bind_iter())
        .bind(done.iter().map(|d| d.1).bind_iter())
        .execute(connection)
        .await
        .map_err(fault)?;
    Ok(usize::try_from(deleted.rows_affected()).unwrap_or(usize::MAX))
}

/// Gives leases back.
pub(super) async fn nacks(
    connection: &mut Session,
    lease: Uuid,
    again: &[(i64, i32, i64)],
) -> Result<(), Fault> {
    if again.is_empty() {
        return Ok(());
    }
    sqlx::query(sql!("queue_nack"))
        .bind(lease)
        .bind(again.iter().map(|a| a.0).bind_iter())
        .bind(again.iter().map(|a| a.1).bind_iter())
        .bind(again.iter().map(|a| a.2.min(DELAY_MS_MAX)).bind_iter())
        .execute(connection)
        .await
        .map(drop)
        .map_err(fault)
}

/// Appends messages in order.
pub(super) async fn put(
    connection: &mut Session,
    queue: &str,
    messages: &[Outgoing],
) -> Result<(), Fault> {
    sqlx::query(sql!("queue_put"))
        .bind(queue)
        .bind(messages.iter().map(stamped).bind_iter())
        .bind(
            messages
                .iter()
                .map(|m| m.message_key.as_deref())
                .bind_iter(),
        )
        .bind(messages.iter().map(|m| m.payload.as_deref()).bind_iter())
        .execute(connection)
        .await
        .map(drop)
        .map_err(fault)
}
