//! The seam to business logic: bind a message to its operation, then answer for the fresh ones inside
//! the open unit.

use std::future::Future;

use semel_core::fingerprint::{FieldSums, Fingerprint};
use semel_core::law::{Binding, Reject};
use semel_core::{Answer, Fault, Message};

/// A message bound to its operation.
#[derive(Debug)]
pub struct Bound<W> {
    /// Key and fingerprint.
    pub binding: Binding,
    /// The handler's own lane for it: messages with one lane number stay in order. `None` leaves the
    /// choice to the consumer's setting.
    pub lane: Option<u64>,
    /// The handler's parsed form, so that a payload is parsed once.
    pub work: W,
}

/// A fresh message inside a unit.
#[derive(Debug)]
pub struct Fresh<'a, W> {
    /// Its content.
    pub message: &'a Message,
    /// Its key and fingerprint.
    pub binding: &'a Binding,
    /// The handler's parsed form.
    pub work: &'a W,
    /// Its deadline has passed: the answer must be final. A `NotYet` would make it `dead(poison)`.
    pub last: bool,
}

/// What a handler says of one fresh message.
#[derive(Debug)]
pub enum Said {
    /// An answer.
    Answer(Answer),
    /// This message alone failed. What it wrote must not stay: see [`Handler::isolates`].
    Fault(Fault),
}

impl From<Answer> for Said {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

/// Business logic behind a consumer, over units of type `U`.
///
/// Most handlers are not written against this trait but against a kind of handler: per message
/// (`semel::per_message`), staged ([`crate::staged::Staged`]) or set-based.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Semel handler for units of `{U}`",
    label = "not a handler",
    note = "a per-message handler is `async fn(Tx<'_>, Message) -> Result<Answer, Fault>`; wrap it with `semel::per_message(rules, f)`",
    note = "a staged handler implements `semel::staged::Staged`; wrap it with `semel::staged::handler(h)`"
)]
pub trait Handler<U>: Send + Sync + 'static {
    /// The parsed form of a message.
    type Work: Send + Sync + 'static;

    /// The handler's name: part of the consumer's owner.
    fn name(&self) -> &str;

    /// Hash of the key rules: other rules give other keys, so a change must be accepted by an operator.
    fn rules(&self) -> Fingerprint;

    /// Binds a message to its operation. Pure: the same message always binds the same way.
    ///
    /// # Errors
    /// Why the message is dead before it could be claimed.
    fn bind(&self, message: &Message) -> Result<Bound<Self::Work>, Reject>;

    /// Tells the database's time, Unix ms, at the start and about once a second: only for the upper limit
    /// of a time inside a key. The default ignores it.
    fn told_time(&self, _now_ms: u64) {}

    /// Whether `message` is the operation whose fingerprint was stored first, although it is bound to another one
    /// now: the same content, normalised when the handler knew less. Asked only where the two differ. The default
    /// says no.
    fn same(&self, _message: &Message, _work: &Self::Work, _first: Fingerprint) -> bool {
        false
    }

    /// The payload's field in which `message` differs from the stored sums of the first content.
    fn differing(&self, message: &Message, work: &Self::Work, stored: &FieldSums)
    -> Option<String>;

    /// Whether [`Handler::handle`] takes back by itself what a message wrote that it answers with a
    /// [`Said::Fault`]. If not, such a message ends the unit, and dies in the next one without being asked for.
    fn isolates(&self) -> bool {
        false
    }

    /// Answers for each of `fresh`, in order. Called with the messages in order of arrival; may be
    /// called again for the same messages after the unit went back behind its claims, so it must keep
    /// no state of its own that an undone call would have to take back.
    ///
    /// What it wrote is committed with its answers: a message whose [`Answer`] is not `Applied` must have
    /// written nothing.
    ///
    /// # Errors
    /// A fault that concerns the whole unit (a store's): the unit is dropped and run again.
    fn handle(
        &self,
        unit: &mut U,
        fresh: &[Fresh<'_, Self::Work>],
    ) -> impl Future<Output = Result<Vec<Said>, Fault>> + Send;
}
