//! What a unit writes besides its claims and the handler's own rows: few statements, each over many rows.

use semel_core::ledger::{LaneId, encode_headers};
use semel_core::ledger::{Letter, Note, Park, Reached, Record, Sighting, Written};
use semel_core::{Fault, Key};
use semel_sql::letter_id;

use crate::bulk::Bulk;
use crate::link::{Args, Link, no_tail};
use crate::sql;
use crate::value::Columns;

/// The bulk statements of the ledger.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) claim: Bulk,
    pub(crate) seen: Bulk,
    pub(crate) release: Bulk,
    pub(crate) attempt: Bulk,
    pub(crate) parked_keys: Bulk,
    pub(crate) parked_awaiting: Bulk,
    note: Bulk,
    unclaim: Bulk,
    park: Bulk,
    unpark: Bulk,
    dead: Bulk,
    sighting: Bulk,
    position: Bulk,
    attempt_settle: Bulk,
}

impl Statements {
    pub(crate) fn new() -> Self {
        Self {
            claim: Bulk::new(sql!("claim")),
            seen: Bulk::new(sql!("seen")),
            release: Bulk::new(sql!("release")),
            attempt: Bulk::new(sql!("attempt")),
            parked_keys: Bulk::new(sql!("parked_keys")),
            parked_awaiting: Bulk::new(sql!("parked_awaiting")),
            note: Bulk::repeated(sql!("note")),
            unclaim: Bulk::new(sql!("unclaim")),
            park: Bulk::new(sql!("park")),
            unpark: Bulk::new(sql!("unpark")),
            dead: Bulk::new(sql!("dead")),
            sighting: Bulk::new(sql!("sighting")),
            position: Bulk::new(sql!("position")),
            attempt_settle: Bulk::new(sql!("attempt_settle")),
        }
    }
}

/// Writes a record of the unit that began at `now_us`.
pub(crate) async fn write(
    link: &mut Link,
    statements: &Statements,
    lane: LaneId,
    now_us: i64,
    record: &Record,
) -> Result<Written, Fault> {
    let consumer = lane.consumer.0;
    let tail = |args: &mut Args| args.push(consumer);
    link.change_all(
        &statements.note,
        &record.notes,
        |args, note| note_row(args, consumer, note),
        no_tail,
    )
    .await?;
    link.change_all(&statements.unclaim, &record.unclaims, key_row, tail)
        .await?;
    link.change_all(
        &statements.park,
        &record.parks,
        |args, park| park_row(args, consumer, now_us, park),
        no_tail,
    )
    .await?;
    link.change_all(&statements.unpark, &record.unparks, key_row, tail)
        .await?;
    let dead = |args: &mut Args, letter: &Letter| letter_row(args, consumer, now_us, letter);
    let counts = link
        .fetch_all(&statements.dead, &record.letters, dead, no_tail)
        .await?;
    let sighting =
        |args: &mut Args, sighting: &Sighting| sighting_row(args, consumer, now_us, sighting);
    link.change_all(&statements.sighting, &record.sightings, sighting, no_tail)
        .await?;
    let position = |args: &mut Args, reached: &Reached| position_row(args, lane, reached);
    link.change_all(&statements.position, &record.positions, position, no_tail)
        .await?;
    link.change_all(
        &statements.attempt_settle,
        &record.settled_attempts,
        key_row,
        tail,
    )
    .await?;
    let mut written = Written::default();
    for count in &counts {
        written.new_letters += usize::from(count.own::<i64>(0)? == 1);
    }
    Ok(written)
}

/// A key alone.
pub(crate) fn key_row(args: &mut Args, key: &Key) {
    args.push(&key.as_bytes()[..]);
}

fn note_row(args: &mut Args, consumer: i32, note: &Note) {
    args.push(note.outcome.number());
    args.push(note.code.as_ref().map(|code| code.as_str()));
    args.push(note.reply.as_deref());
    args.push(consumer);
    key_row(args, &note.key);
}

fn park_row(args: &mut Args, consumer: i32, now_us: i64, park: &Park) {
    let message = &park.message;
    args.push(consumer);
    key_row(args, &park.key);
    args.push(&*park.id);
    args.push(park.awaiting.kind.as_str());
    key_row(args, &park.awaiting.key);
    args.push(park.source.0);
    args.push(&*message.position.partition);
    args.push(message.position.offset.map(integer));
    args.push(encode_headers(&message.headers));
    args.push(message.message_key.as_deref());
    args.push(message.timestamp_ms);
    args.push(message.payload.as_deref());
    args.push(now_us);
    args.push(now_us.saturating_add(us(park.due_in_ms)));
    args.push(now_us.saturating_add(us(park.deadline_in_ms)));
}

fn letter_row(args: &mut Args, consumer: i32, now_us: i64, letter: &Letter) {
    let message = &letter.message;
    let size = message.cut.map_or_else(
        || u64::try_from(message.bytes().len()).unwrap_or(u64::MAX),
        |cut| cut.size,
    );
    args.push(consumer);
    key_row(args, &letter_id(letter));
    args.push(letter.key.as_ref().map(|key| &key.as_bytes()[..]));
    args.push(letter.id.as_deref());
    args.push(letter.code.as_str());
    args.push(&*letter.detail);
    args.push(letter.field.as_deref());
    args.push(&letter.hash[..]);
    args.push(i64::from(letter.attempts));
    args.push(letter.source.0);
    args.push(&*message.position.partition);
    args.push(message.position.offset.map(integer));
    args.push(encode_headers(&message.headers));
    args.push(message.message_key.as_deref());
    args.push(message.timestamp_ms);
    args.push(message.payload.as_deref());
    args.push(integer(size));
    args.push(now_us);
    args.push(now_us);
}

fn sighting_row(args: &mut Args, consumer: i32, now_us: i64, sighting: &Sighting) {
    args.push(consumer);
    key_row(args, &sighting.key);
    args.push(sighting.source.0);
    args.push(sighting.kind.number());
    args.push(sighting.count);
    args.push(&*sighting.partition);
    args.push(sighting.offset.map(integer));
    args.push(now_us);
    args.push(now_us);
}

fn position_row(args: &mut Args, lane: LaneId, reached: &Reached) {
    args.push(lane.consumer.0);
    args.push(lane.lane);
    args.push(reached.source.0);
    args.push(&*reached.partition);
    args.push(integer(reached.next));
    args.push(&*reached.mark);
}

/// An offset or size as SQL knows it. No source has offsets beyond 2^63.
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Microseconds of a delay; one beyond 10 000 years counts as that, and stays within SQLite's integers.
pub(crate) fn us(ms: u64) -> i64 {
    const MS_MAX: u64 = 10_000 * 366 * 86_400_000;
    integer(ms.min(MS_MAX)).saturating_mul(1000)
}
