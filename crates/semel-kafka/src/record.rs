//! A record as a message: everything kept as it came, within the limits.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use bytes::{Bytes, BytesMut};
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Headers as _, Message as _};
use semel_core::Message;
use semel_core::Position;
use semel_core::ledger::Mark;
use semel_core::message::{Cut, Headers};
use sha2::{Digest, Sha256};

use crate::mark;
use crate::options::KafkaOptions;

/// Of a value that is too large so much is handed out, for the operator to see what it is.
pub(crate) const CUT_BYTES: usize = 64 << 10;

/// Bytes of records that lie together.
const PIECE_BYTES: usize = 4 << 10;

/// Marks that lie together: one of each partition outlives its record for long, and keeps its piece.
const MARKS_BYTES: usize = 1 << 10;

/// Copies bytes out of the client library's memory, those of some dozens of records into one piece: to allocate for each,
/// and to free in another thread, was a tenth of the client's work (docs/benchmarks.md). A piece lives as long as the
/// last record in it, so it is small.
#[derive(Debug)]
pub(crate) struct Copier {
    records: Pieces,
    marks: Pieces,
}

impl Default for Copier {
    fn default() -> Self {
        Self {
            records: Pieces::of(PIECE_BYTES),
            marks: Pieces::of(MARKS_BYTES),
        }
    }
}

#[derive(Debug)]
struct Pieces {
    bytes: usize,
    piece: BytesMut,
}

impl Pieces {
    fn of(bytes: usize) -> Self {
        Self {
            bytes,
            piece: BytesMut::new(),
        }
    }

    /// What is longer than an eighth of a piece has memory of its own: it would waste the rest of one.
    fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.is_empty() || bytes.len() > self.bytes / 8 {
            return Bytes::copy_from_slice(bytes);
        }
        if self.piece.capacity() < bytes.len() {
            self.piece = BytesMut::with_capacity(self.bytes);
        }
        self.piece.extend_from_slice(bytes);
        self.piece.split().freeze()
    }
}

/// What a message may weigh.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) message_bytes_max: usize,
    pub(crate) header_count_max: usize,
    pub(crate) header_bytes_max: usize,
}

impl From<&KafkaOptions> for Limits {
    fn from(options: &KafkaOptions) -> Self {
        Self {
            message_bytes_max: options.message_bytes_max,
            header_count_max: options.header_count_max,
            header_bytes_max: options.header_bytes_max,
        }
    }
}

/// Copies a record out of the client library's memory. Its mark goes with it.
///
/// A record with too many or too large headers keeps those within the limit, and is marked as cut like one
/// with a value too large: a key or a field may be among the lost ones, so it must not be judged.
pub(crate) fn message(
    record: &BorrowedMessage<'_>,
    partition: &Arc<str>,
    limits: Limits,
    copier: &mut Copier,
) -> (Message, Mark) {
    let timestamp_ms = record.timestamp().to_millis();
    // The client library panics at a header whose name is not UTF-8. Such a record must end dead like any
    // other that cannot be judged, and not end the consumer (E050).
    let read = quietly(|| headers(record.headers(), limits));
    let (headers, headers_whole, headers_size) = read.unwrap_or_else(|| (Arc::default(), false, 0));
    let value = record.payload();
    let whole = value.is_none_or(|value| value.len() <= limits.message_bytes_max) && headers_whole;
    let shown = if whole { usize::MAX } else { CUT_BYTES };
    let message = Message {
        payload: value.map(|value| copier.records.copy(&value[..value.len().min(shown)])),
        cut: (!whole).then(|| cut(value.unwrap_or_default(), headers_size)),
        headers,
        position: Position {
            partition: partition.clone(),
            offset: u64::try_from(record.offset()).ok(),
        },
        message_key: record.key().map(|key| copier.records.copy(key)),
        attempt: 1,
        timestamp_ms,
    };
    let mark = copier.marks.copy(&mark::of(timestamp_ms, record.key()));
    (message, mark)
}

thread_local! {
    /// A panic on this thread is expected and caught.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs what may panic inside the client library. A sender who can provoke that must not be able to fill the log
/// with it, so the hook of the program is not told.
fn quietly<T>(read: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !EXPECTED.get() {
                hook(info);
            }
        }));
    });
    EXPECTED.set(true);
    let read = catch_unwind(AssertUnwindSafe(read));
    EXPECTED.set(false);
    read.ok()
}

fn cut(value: &[u8], headers_size: usize) -> Cut {
    let mut hash = [0; 16];
    hash.copy_from_slice(&Sha256::digest(value)[..16]);
    Cut {
        size: value.len() as u64 + headers_size as u64,
        hash,
    }
}

/// The headers within the limits, whether that is all of them, and the bytes of all.
fn headers(given: Option<&BorrowedHeaders>, limits: Limits) -> (Headers, bool, usize) {
    let Some(given) = given else {
        return (Arc::default(), true, 0);
    };
    let size: usize = given
        .iter()
        .map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len))
        .sum();
    let mut left = limits.header_bytes_max;
    let kept: Vec<_> = given
        .iter()
        .take(limits.header_count_max)
        .map_while(|header| {
            let value = header.value.unwrap_or_default();
            left = left.checked_sub(header.key.len() + value.len())?;
            Some((header.key.to_owned(), Bytes::copy_from_slice(value)))
        })
        .collect();
    let whole = kept.len() == given.count();
    (kept.into(), whole, size)
}
