//! The seam for publishing: one method that returns when the messages are durable.

use bytes::Bytes;

use crate::fault::Fault;
use crate::key::Key;
use crate::source::BoxFuture;

/// The header that carries the key from the source of an operation to its consumers.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A message to publish.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Stamped as the header [`IDEMPOTENCY_KEY`] when present. `None` only for content that has no
    /// usable key: the consumer will say `dead(no_key)`.
    pub key: Option<Key>,
    /// The content.
    pub payload: Option<Bytes>,
    /// Headers besides the key.
    pub headers: Vec<(String, Bytes)>,
    /// The broker's message key: what keeps order there.
    pub message_key: Option<Bytes>,
}

/// Publishes messages. A message that could not be confirmed may still have arrived: publish it again
/// with the same key.
pub trait Sink: Send + Sync {
    /// Publishes all of `messages` in order and returns when every one is durable and routed.
    ///
    /// # Errors
    /// `Down` when the broker is away, `Poison` when it will never take one of them (too large); the
    /// error names the message's index. None, some or all may have arrived.
    fn publish<'a>(&'a self, messages: &'a [Outgoing]) -> BoxFuture<'a, Result<(), Fault>>;
}
