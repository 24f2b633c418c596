//! What a unit writes besides its claims and the handler's rows: each part one set-based statement, and none
//! for a part that is empty.

use std::collections::BTreeMap;

use semel_core::ledger::{
    ConsumerId, LaneId, Letter, Park, Reached, Record, Sighting, Written, encode_headers,
};
use semel_core::{Fault, Key};
use semel_sql::letter_id;
use sqlx::Row;
use sqlx::postgres::PgBindIterExt;
use sqlx::types::Uuid;

use crate::fault::fault;
use crate::session::Session;
use crate::sql;
use crate::value::{storable, uuid};

/// The longest wait that is stored, ms: a hundred years, since the server's instants end somewhere too.
const WAIT_MS_MAX: u64 = 100 * 365 * 86_400_000;

pub(crate) async fn write(
    connection: &mut Session,
    lane: LaneId,
    record: &Record,
) -> Result<Written, Fault> {
    let consumer = lane.consumer;
    notes(connection, consumer, record).await?;
    by_keys(connection, consumer, sql!("unclaim"), &record.unclaims).await?;
    parks(connection, consumer, &record.parks).await?;
    by_keys(connection, consumer, sql!("unpark"), &record.unparks).await?;
    by_keys(
        connection,
        consumer,
        sql!("attempt_settle"),
        &record.settled_attempts,
    )
    .await?;
    let new_letters = letters(connection, consumer, &record.letters).await?;
    trail(connection, lane, &record.sightings, &record.positions).await?;
    Ok(Written { new_letters })
}

/// Raises attempts; the new counts in the order of `keys`.
pub(crate) async fn attempt(
    connection: &mut Session,
    consumer: ConsumerId,
    keys: &[Key],
) -> Result<Vec<u32>, Fault> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(sql!("attempt"))
        .bind(consumer.0)
        .bind(keys.iter().map(|k| uuid(*k)).bind_iter())
        .fetch_all(connection)
        .await
        .map_err(fault)?;
    let mut counts = BTreeMap::new();
    for row in &rows {
        let key: Uuid = row.try_get(0).map_err(fault)?;
        let count: i32 = row.try_get(1).map_err(fault)?;
        counts.insert(key, u32::try_from(count).unwrap_or(0));
    }
    Ok(keys
        .iter()
        .map(|key| counts.get(&uuid(*key)).copied().unwrap_or(0))
        .collect())
}

async fn by_keys(
    connection: &mut Session,
    consumer: ConsumerId,
    sql: &'static str,
    keys: &[Key],
) -> Result<(), Fault> {
    if keys.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(sql)
        .bind(consumer.0)
        .bind(keys.iter().map(|k| uuid(*k)).bind_iter());
    query.execute(connection).await.map(drop).map_err(fault)
}

async fn notes(
    connection: &mut Session,
    consumer: ConsumerId,
    record: &Record,
) -> Result<(), Fault> {
    let notes = &record.notes;
    if notes.is_empty() {
        return Ok(());
    }
    sqlx::query(sql!("note"))
        .bind(consumer.0)
        .bind(notes.iter().map(|n| uuid(n.key)).bind_iter())
        .bind(notes.iter().map(|n| n.outcome.number()).bind_iter())
        .bind(
            notes
                .iter()
                .map(|n| n.code.as_ref().map(|c| c.as_str()))
                .bind_iter(),
        )
        .bind(notes.iter().map(|n| n.reply.as_deref()).bind_iter())
        .execute(connection)
        .await
        .map(drop)
        .map_err(fault)
}

async fn parks(
    connection: &mut Session,
    consumer: ConsumerId,
    parks: &[Park],
) -> Result<(), Fault> {
    if parks.is_empty() {
        return Ok(());
    }
    let places = offsets(parks.iter().map(|p| p.message.position.offset))?;
    let wait =
        |ms: u64| i64::try_from(ms.min(WAIT_MS_MAX)).expect("a hundred years of ms have 42 bits");
    sqlx::query(sql!("park"))
        .bind(consumer.0)
        .bind(parks.iter().map(|p| uuid(p.key)).bind_iter())
        .bind(parks.iter().map(|p| storable(&p.id)).bind_iter())
        .bind(parks.iter().map(|p| p.awaiting.kind.as_str()).bind_iter())
        .bind(parks.iter().map(|p| uuid(p.awaiting.key)).bind_iter())
        .bind(parks.iter().map(|p| p.source.0).bind_iter())
        .bind(
            parks
                .iter()
                .map(|p| storable(&p.message.position.partition))
                .bind_iter(),
        )
        .bind(places)
        .bind(
            parks
                .iter()
                .map(|p| encode_headers(&p.message.headers))
                .bind_iter(),
        )
        .bind(
            parks
                .iter()
                .map(|p| p.message.message_key.as_deref())
                .bind_iter(),
        )
        .bind(parks.iter().map(|p| p.message.timestamp_ms).bind_iter())
        .bind(
            parks
                .iter()
                .map(|p| p.message.payload.as_deref())
                .bind_iter(),
        )
        .bind(parks.iter().map(|p| wait(p.due_in_ms)).bind_iter())
        .bind(parks.iter().map(|p| wait(p.deadline_in_ms)).bind_iter())
        .execute(connection)
        .await
        .map(drop)
        .map_err(fault)
}

/// A letter with its identity, and how often this unit met it.
struct Counted<'a> {
    letter: &'a Letter,
    count: i64,
}

/// The letters by identity: one statement may not touch a row twice.
fn counted(letters: &[Letter]) -> BTreeMap<Uuid, Counted<'_>> {
    let mut distinct = BTreeMap::new();
    for letter in letters {
        distinct
            .entry(uuid(letter_id(letter)))
            .or_insert(Counted { letter, count: 0 })
            .count += 1;
    }
    distinct
}

/// Keeps dead letters; how many are new.
async fn letters(
    connection: &mut Session,
    consumer: ConsumerId,
    letters: &[Letter],
) -> Result<usize, Fault> {
    if letters.is_empty() {
        return Ok(0);
    }
    let distinct = counted(letters);
    let all = || distinct.values().map(|c| c.letter);
    let places = offsets(all().map(|l| l.message.position.offset))?;
    let size = |l: &Letter| {
        l.message
            .cut
            .map_or(l.message.bytes().len() as u64, |cut| cut.size)
    };
    let rows = sqlx::query(sql!("dead"))
        .bind(consumer.0)
        .bind(distinct.keys().copied().bind_iter())
        .bind(all().map(|l| l.key.map(uuid)).bind_iter())
        .bind(all().map(|l| l.id.as_deref().map(storable)).bind_iter())
        .bind(all().map(|l| l.code.as_str()).bind_iter())
        .bind(all().map(|l| storable(&l.detail)).bind_iter())
        .bind(all().map(|l| l.field.as_deref().map(storable)).bind_iter())
        .bind(all().map(|l| Uuid::from_bytes(l.hash)).bind_iter())
        .bind(
            all()
                .map(|l| i32::try_from(l.attempts).unwrap_or(i32::MAX))
                .bind_iter(),
        )
        .bind(distinct.values().map(|c| c.count).bind_iter())
        .bind(all().map(|l| l.source.0).bind_iter())
        .bind(
            all()
                .map(|l| storable(&l.message.position.partition))
                .bind_iter(),
        )
        .bind(places)
        .bind(
            all()
                .map(|l| encode_headers(&l.message.headers))
                .bind_iter(),
        )
        .bind(all().map(|l| l.message.message_key.as_deref()).bind_iter())
        .bind(all().map(|l| l.message.timestamp_ms).bind_iter())
        .bind(all().map(|l| l.message.payload.as_deref()).bind_iter())
        .bind(
            all()
                .map(|l| i64::try_from(size(l)).unwrap_or(i64::MAX))
                .bind_iter(),
        )
        .fetch_all(connection)
        .await
        .map_err(fault)?;
    let mut new = 0;
    for row in &rows {
        let identity: Uuid = row.try_get(0).map_err(fault)?;
        let count: i64 = row.try_get(1).map_err(fault)?;
        // A row that was there before had a count already.
        new += usize::from(distinct.get(&identity).is_some_and(|c| c.count == count));
    }
    Ok(new)
}

/// Counts further deliveries and raises positions.
async fn trail(
    connection: &mut Session,
    lane: LaneId,
    sightings: &[Sighting],
    reached: &[Reached],
) -> Result<(), Fault> {
    if sightings.is_empty() && reached.is_empty() {
        return Ok(());
    }
    let mut highest: BTreeMap<(i16, &str), &Reached> = BTreeMap::new();
    for one in reached {
        let known = highest.entry((one.source.0, &one.partition)).or_insert(one);
        if one.next > known.next {
            *known = one;
        }
    }
    let seen_at = offsets(sightings.iter().map(|s| s.offset))?;
    let next = offsets(highest.values().map(|r| Some(r.next)))?;
    sqlx::query(sql!("trail"))
        .bind(lane.consumer.0)
        .bind(lane.lane)
        .bind(sightings.iter().map(|s| uuid(s.key)).bind_iter())
        .bind(sightings.iter().map(|s| s.source.0).bind_iter())
        .bind(sightings.iter().map(|s| s.kind.number()).bind_iter())
        .bind(sightings.iter().map(|s| s.count).bind_iter())
        .bind(sightings.iter().map(|s| storable(&s.partition)).bind_iter())
        .bind(seen_at)
        .bind(highest.values().map(|r| r.source.0).bind_iter())
        .bind(highest.values().map(|r| storable(&r.partition)).bind_iter())
        .bind(next)
        .bind(highest.values().map(|r| r.mark.as_ref()).bind_iter())
        .execute(connection)
        .await
        .map(drop)
        .map_err(fault)
}

/// Offsets as the database's 64 signed bits.
fn offsets(offsets: impl Iterator<Item = Option<u64>>) -> Result<Vec<Option<i64>>, Fault> {
    let signed = |offset: u64| {
        i64::try_from(offset).map_err(|_| {
            Fault::stop(format!(
                "offset {offset} is beyond 63 bits, which no broker counts to"
            ))
        })
    };
    offsets
        .map(|offset| offset.map(signed).transpose())
        .collect()
}
