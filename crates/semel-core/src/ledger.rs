//! The seam to a database: one transaction per unit of work, entered by a fence, left by a commit whose
//! outcome is three-valued. The rules behind each method are the law's (`law`), the SQL is the
//! dialect's.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;

use crate::fault::Fault;
use crate::fingerprint::{FieldSums, Fingerprint, Scheme};
use crate::key::Key;
use crate::message::{Headers, Message};
use crate::outcome::{Awaiting, Code, Outcome};
use crate::source::Limit;

/// Number of a consumer in `semel_consumer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerId(pub i32);

/// Number of a source within a consumer, in `semel_source`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub i16);

/// Random id of a process start. It names the fence rows of this life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instance(pub [u8; 16]);

impl Instance {
    /// The instance of no life; see [`LaneId::acquittal`].
    pub const NO_LIFE: Self = Self([0; 16]);
}

/// Names one lane of one life of one consumer: one fence row, one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId {
    /// The consumer.
    pub consumer: ConsumerId,
    /// The life.
    pub instance: Instance,
    /// The lane, from 0.
    pub lane: i16,
}

impl LaneId {
    /// The fence row that says when the lane was last found to be sound. It belongs to no life, and every
    /// unit on it says so again: crashes before its `seen_at` are no longer counted.
    #[must_use]
    pub const fn acquittal(self) -> Self {
        Self {
            instance: Instance::NO_LIFE,
            ..self
        }
    }
}

/// The number of a unit on its lane: what the fence row carries while the unit is open and for ever
/// after it committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence {
    /// The lane.
    pub lane: LaneId,
    /// The unit's number, from 1.
    pub unit: i64,
}

/// Proof that a unit is committed, and as durable as its database promises. Only ledgers make one, only
/// this can ack a receipt, and nothing takes it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    fence: Fence,
}

impl Committed {
    /// Called by ledgers only, when the database has confirmed the commit of `fence`'s unit or a fresh
    /// connection has found it committed.
    #[must_use]
    pub const fn witnessed(fence: Fence) -> Self {
        Self { fence }
    }

    /// The unit.
    #[must_use]
    pub const fn fence(&self) -> Fence {
        self.fence
    }
}

/// The outcome of a commit.
#[derive(Debug)]
pub enum Commit<L> {
    /// Confirmed. The lane can begin its next unit.
    Committed(Committed, L),
    /// Nothing of the unit is in the database, for certain.
    RolledBack(Fault),
    /// The database may or may not have it: ask [`Ledger::resolve`] before anything is said.
    Unknown(Fault),
}

/// Answer of [`Ledger::resolve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// The unit is committed.
    Committed(Committed),
    /// The unit is not, and can never be.
    RolledBack,
    /// The fence is lower than a number that was confirmed: the database lost commits.
    Lost,
}

/// Registers a consumer: its name, its owner and its sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    /// The consumer's name.
    pub consumer: String,
    /// The handler's name: first half of the owner.
    pub handler: String,
    /// Hash of the key rules: second half of the owner. Other rules give other keys, so they are
    /// refused until the operator accepts the change.
    pub rules: Fingerprint,
    /// The names of its sources.
    pub sources: Vec<String>,
    /// The operator accepts changed key rules (`semel migrate --accept-key-change`).
    pub accept_key_change: bool,
}

/// What the ledger knows a consumer by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolled {
    /// Its number.
    pub consumer: ConsumerId,
    /// The numbers of its sources, in the order of the enrolment.
    pub sources: Vec<SourceId>,
    /// The database's time, Unix ms: the upper limit of times inside keys is judged by it.
    pub now_ms: u64,
    /// Lanes of which two or more lives crashed before they committed anything, since the lane was last
    /// acquitted (see [`LaneId::acquittal`]). A life has crashed when its fence row stands at unit 0 and
    /// was not touched for [`CRASHED_AFTER_S`].
    pub suspects: Vec<i16>,
}

/// A fence row that was not touched for so many seconds, by the database's clock, is a crashed life's: a
/// lane that lives touches its own far more often.
pub const CRASHED_AFTER_S: u32 = 30;

/// What to claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The key.
    pub key: Key,
    /// Fingerprint of the content.
    pub fingerprint: Fingerprint,
    /// Its scheme.
    pub scheme: Scheme,
    /// Sums of its fields, to name the one that differs in a Clash.
    pub sums: FieldSums,
    /// The source of the delivery.
    pub source: SourceId,
    /// New, or a parked message on its way back.
    pub kind: ClaimKind,
}

/// The two ways to take a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimKind {
    /// Insert the row.
    New,
    /// The row says `parked`: compare-and-set it to `applied`.
    Released,
}

/// What the ledger row of a key said before this unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prior {
    /// The recorded outcome.
    pub outcome: Outcome,
    /// Its code; for a parked row the kind of thing it awaits.
    pub code: Option<Code>,
    /// The recorded reply.
    pub reply: Option<Bytes>,
    /// Fingerprint of the first content.
    pub fingerprint: Fingerprint,
    /// Scheme of that fingerprint: rows of another scheme are Seen unchecked.
    pub scheme: Scheme,
    /// Sums of the first content's fields.
    pub sums: FieldSums,
    /// Where the first delivery came from.
    pub source: SourceId,
    /// When, by the database's clock, Unix µs.
    pub at_us: i64,
}

/// Answer to one claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// The key is ours: do the work.
    Fresh,
    /// The key was there.
    Seen(Box<Prior>),
    /// A released message whose row no longer says `parked`: another unit ended it. Nothing to do.
    Ended,
}

/// A ledger row that must say something else than the claim wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The key.
    pub key: Key,
    /// The outcome.
    pub outcome: Outcome,
    /// Its code; for `parked` the kind awaited.
    pub code: Option<Code>,
    /// The reply.
    pub reply: Option<Bytes>,
}

/// A message to keep until its time comes.
#[derive(Debug, Clone)]
pub struct Park {
    /// Its key.
    pub key: Key,
    /// The key's source text.
    pub id: String,
    /// What it waits for.
    pub awaiting: Awaiting,
    /// Its content and position.
    pub message: Message,
    /// Its source.
    pub source: SourceId,
    /// The next try by the sweep, ms from now by the database's clock.
    pub due_in_ms: u64,
    /// Its deadline, ms from now by the database's clock, set at the first park and kept by later ones.
    pub deadline_in_ms: u64,
    /// Whether it is here for the first time.
    pub kind: ClaimKind,
}

/// A parked message on its way back.
#[derive(Debug, Clone)]
pub struct Parked {
    /// Its key.
    pub key: Key,
    /// The key's source text.
    pub id: String,
    /// Its content and position, as first delivered.
    pub message: Message,
    /// Its source.
    pub source: SourceId,
    /// How often it was tried.
    pub attempts: u32,
    /// Its deadline has passed: the handler must answer finally.
    pub last: bool,
}

/// Which parked messages to bring back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which<'a> {
    /// These keys.
    Keys(&'a [Key]),
    /// Those that wait for one of these.
    Awaiting(&'a [Key]),
    /// Those whose time or deadline has come, by the database's clock, with a key above this one.
    Due(Option<Key>),
    /// All, whatever they wait for, with a key above this one.
    After(Option<Key>),
}

/// A dead letter.
#[derive(Debug, Clone)]
pub struct Letter {
    /// The key, where there is one: then the letter's subject.
    pub key: Option<Key>,
    /// The key's source text.
    pub id: Option<String>,
    /// Why.
    pub code: Code,
    /// A sentence for the operator.
    pub detail: String,
    /// The payload's field at fault.
    pub field: Option<String>,
    /// Hash of the whole payload (SHA-256, first 16 bytes).
    pub hash: [u8; 16],
    /// Attempts made.
    pub attempts: u32,
    /// The source.
    pub source: SourceId,
    /// Content, position and headers. The payload may be cut (`too_large`).
    pub message: Message,
}

/// Why a key was met again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SightingKind {
    /// Same content, the first one has ended.
    Duplicate,
    /// Same content, the first one is parked.
    Parked,
    /// Other content.
    Clash,
    /// Read again on purpose (`--from-start`, a rewind, a broker behind the ledger's position).
    Replay,
}

impl SightingKind {
    /// The number stored in `semel_sighting.kind`.
    #[must_use]
    pub const fn number(self) -> i16 {
        match self {
            Self::Duplicate => 1,
            Self::Parked => 2,
            Self::Clash => 3,
            Self::Replay => 4,
        }
    }

    /// The word used in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::Parked => "parked",
            Self::Clash => "clash",
            Self::Replay => "replay",
        }
    }
}

/// Deliveries of a key after the first, of one source and kind, in one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// The key.
    pub key: Key,
    /// The source.
    pub source: SourceId,
    /// The kind.
    pub kind: SightingKind,
    /// How many.
    pub count: i64,
    /// Partition of the latest.
    pub partition: Arc<str>,
    /// Offset of the latest.
    pub offset: Option<u64>,
}

/// What a source needs to continue behind a message, and to recognise it: up to 64 bytes of its own.
pub type Mark = Bytes;

/// How far a partition is done: every message below `next` is settled by a committed unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// The source.
    pub source: SourceId,
    /// The partition.
    pub partition: Arc<str>,
    /// The lowest offset that is not done.
    pub next: u64,
    /// The source's mark of the record before `next`.
    pub mark: Mark,
}

/// Everything a unit writes besides its claims and the handler's own rows. All of it in few set-based
/// statements, each sorted.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Rows that must not say `applied`, or have a reply.
    pub notes: Vec<Note>,
    /// Claims of this unit to delete: of dead messages.
    pub unclaims: Vec<Key>,
    /// Messages to park, or to park again.
    pub parks: Vec<Park>,
    /// Parked messages that ended.
    pub unparks: Vec<Key>,
    /// Dead letters.
    pub letters: Vec<Letter>,
    /// Further deliveries of known keys.
    pub sightings: Vec<Sighting>,
    /// How far partitions are done.
    pub positions: Vec<Reached>,
    /// Keys whose attempts are forgotten: they ended.
    pub settled_attempts: Vec<Key>,
}

impl Record {
    /// Nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
            && self.unclaims.is_empty()
            && self.parks.is_empty()
            && self.unparks.is_empty()
            && self.letters.is_empty()
            && self.sightings.is_empty()
            && self.positions.is_empty()
            && self.settled_attempts.is_empty()
    }
}

/// The two savepoints of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Save {
    /// Behind the claims: where a collision goes back to.
    Claims,
    /// Before a small group of messages.
    Group,
}

/// An idempotency ledger in a business database.
pub trait Ledger: Send + Sync + 'static {
    /// One lane's connection, between units. Dropping it closes the connection.
    type Lane: Send + 'static;
    /// An open unit of work. Dropping it closes the connection, which rolls it back.
    type Unit: Unit<Lane = Self::Lane>;

    /// Registers a consumer, or finds it again.
    ///
    /// # Errors
    /// `Stop` when another owner has the name, or its key rules changed; `Down`.
    fn enroll(&self, enrolment: &Enrolment)
    -> impl Future<Output = Result<Enrolled, Fault>> + Send;

    /// Opens a lane's connection and makes sure that its fence row exists.
    ///
    /// # Errors
    /// `Down`, `Busy`.
    fn connect(&self, lane: LaneId) -> impl Future<Output = Result<Self::Lane, Fault>> + Send;

    /// Begins a unit: opens the transaction and raises the lane's fence. On a fault the connection is gone.
    ///
    /// # Errors
    /// `Down`, `Busy`.
    fn begin(&self, lane: Self::Lane) -> impl Future<Output = Result<Self::Unit, Fault>> + Send;

    /// Settles an unknown commit on a fresh connection to the primary: locks the fence row by an
    /// `UPDATE` (and so waits for the lost transaction, or ends its silent holder), compares, commits.
    ///
    /// # Errors
    /// `Down`, `Busy`: still unknown, ask again; nothing may be acked meanwhile.
    fn resolve(&self, fence: Fence) -> impl Future<Output = Result<Resolved, Fault>> + Send;

    /// Deletes the lane's fence row: at a clean stop, and before a life's first message. The same lane may connect again, and its
    /// units count from 1 anew; after an error too, where the row may or may not have stayed.
    ///
    /// # Errors
    /// `Down`; at a stop the row is then taken for a crashed life's.
    fn leave(&self, lane: Self::Lane) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Parked messages, in key order, the first ones within `limit`. No more is read into memory, unless they are
    /// asked for by their keys.
    ///
    /// # Errors
    /// `Down`, `Busy`.
    fn parked(
        &self,
        consumer: ConsumerId,
        which: Which<'_>,
        limit: Limit,
    ) -> impl Future<Output = Result<Vec<Parked>, Fault>> + Send;

    /// The stored positions of a source: per partition the maximum over the lanes.
    ///
    /// # Errors
    /// `Down`, `Busy`.
    fn positions(
        &self,
        consumer: ConsumerId,
        source: SourceId,
    ) -> impl Future<Output = Result<Vec<Reached>, Fault>> + Send;
}

/// An open unit of work: one transaction on one connection. After any fault it must be dropped, unless
/// it goes [`Unit::back`] to a savepoint.
pub trait Unit: Send + 'static {
    /// The connection it gives back at commit.
    type Lane: Send + 'static;

    /// The fence this unit raised.
    fn fence(&self) -> Fence;

    /// Claims keys (distinct, sorted), answers in the same order.
    ///
    /// # Errors
    /// `Busy` when a key was neither inserted nor found, or a lock could not be had; `Down`.
    fn claim(
        &mut self,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<Claimed>, Fault>> + Send;

    /// Sets a savepoint; an older one of the same name is forgotten.
    ///
    /// # Errors
    /// `Down`.
    fn save(&mut self, save: Save) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Goes back to the savepoint: everything after it is undone, and an error since then is healed.
    ///
    /// # Errors
    /// `Down`, or the fault that cannot be healed because the transaction is gone.
    fn back(&mut self, save: Save) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Raises the attempts of `keys` (distinct, sorted) by one and returns them.
    ///
    /// # Errors
    /// `Down`, `Busy`.
    fn attempt(&mut self, keys: &[Key]) -> impl Future<Output = Result<Vec<u32>, Fault>> + Send;

    /// Writes the record. Returns how many letters are new (a redelivered dead message adds a count).
    ///
    /// # Errors
    /// `Down`, `Busy`.
    fn write(&mut self, record: &Record) -> impl Future<Output = Result<Written, Fault>> + Send;

    /// Checks that the fence row still carries this unit's number, and commits.
    fn commit(self) -> impl Future<Output = Commit<Self::Lane>> + Send;
}

/// What [`Unit::write`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Dead letters that were not there before.
    pub new_letters: usize,
}

/// Headers as stored: `name`, value pairs in order (see the schema's page for the byte form).
#[must_use]
pub fn encode_headers(headers: &Headers) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in headers.iter() {
        for part in [name.as_bytes(), value] {
            let length = u32::try_from(part.len()).expect("sources limit headers far below 4 GiB");
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(part);
        }
    }
    out
}

/// Headers from their stored form; `None` when the bytes are not one.
#[must_use]
pub fn decode_headers(mut bytes: &[u8]) -> Option<Headers> {
    fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        *bytes = rest;
        Some(part)
    }
    let mut headers = Vec::new();
    while !bytes.is_empty() {
        let name = std::str::from_utf8(take(&mut bytes)?).ok()?.to_owned();
        headers.push((name, Bytes::copy_from_slice(take(&mut bytes)?)));
    }
    Some(headers.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e126_headers_come_back_in_order_with_repeated_names_and_binary_values() {
        let headers: Headers = vec![
            ("dup".to_owned(), Bytes::from_static(b"\x00\xff")),
            ("dup".to_owned(), Bytes::new()),
            ("b".to_owned(), Bytes::from_static(b"x")),
        ]
        .into();
        assert_eq!(decode_headers(&encode_headers(&headers)), Some(headers));
        assert_eq!(decode_headers(b"\x00\x00\x00\x09x"), None);
    }
}
