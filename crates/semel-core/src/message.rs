//! A message and where it came from. Immutable data; the right to settle it travels apart, in a
//! [`Receipt`](crate::source::Receipt).

use std::sync::Arc;

use bytes::Bytes;

/// Where a broker keeps a message: never part of its identity (TRAPS T80).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The partition: a Kafka `topic/partition`, a queue, a file's path as written.
    pub partition: Arc<str>,
    /// The place in it, where the source has one that survives redelivery: a line (from 1), an
    /// offset, a row id. `None` on RabbitMQ.
    pub offset: Option<u64>,
}

/// Headers in the order of the wire. Names may repeat; values are bytes.
pub type Headers = Arc<[(String, Bytes)]>;

/// The payload was longer than the source hands out: only its beginning is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The whole length in bytes.
    pub size: u64,
    /// SHA-256 of the whole, first 16 bytes.
    pub hash: [u8; 16],
}

/// One delivery's content, as the source read it.
///
/// ```
/// use semel_core::Message;
///
/// let message = Message::new(br#"{"id":"pay-1"}"#.as_slice(), "ops.jsonl", Some(1));
/// assert_eq!(message.payload.as_deref(), Some(br#"{"id":"pay-1"}"#.as_slice()));
/// ```
#[derive(Debug, Clone)]
pub struct Message {
    /// The content. `None` is a null value (a Kafka tombstone), which is not an empty one.
    pub payload: Option<Bytes>,
    /// Set when the payload is only the beginning of one that is too large.
    pub cut: Option<Cut>,
    /// Headers in the order of the wire.
    pub headers: Headers,
    /// Where the broker keeps it.
    pub position: Position,
    /// The broker's message key, where it has one: the default lane key.
    pub message_key: Option<Bytes>,
    /// How often the *source* says it delivered this message, from 1. A hint, never evidence.
    pub attempt: u32,
    /// The broker's time, Unix ms. Never used as identity, and never to judge age.
    pub timestamp_ms: Option<i64>,
}

impl Message {
    /// A message with a payload and a position, and nothing else.
    pub fn new(
        payload: impl Into<Bytes>,
        partition: impl Into<Arc<str>>,
        offset: Option<u64>,
    ) -> Self {
        Self {
            payload: Some(payload.into()),
            cut: None,
            headers: Arc::new([]),
            position: Position {
                partition: partition.into(),
                offset,
            },
            message_key: None,
            attempt: 1,
            timestamp_ms: None,
        }
    }

    /// The payload's bytes; a null payload has none.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.payload.as_deref().unwrap_or_default()
    }

    /// The first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&Bytes> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value)
    }

    /// What every message holds beside its content: the struct, its reference counts and its place in queues.
    pub const OVERHEAD_BYTES: usize = 256;

    /// Bytes held in memory for this message: what byte budgets count.
    #[must_use]
    pub fn size(&self) -> usize {
        let headers: usize = self
            .headers
            .iter()
            .map(|(n, v)| n.len() + v.len() + 48)
            .sum();
        Self::OVERHEAD_BYTES
            + self.bytes().len()
            + headers
            + self.message_key.as_ref().map_or(0, Bytes::len)
    }
}
