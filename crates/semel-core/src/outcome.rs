//! How a message ended, and what a handler may answer. Closed lists: every decision over them is
//! exhaustive, so a new outcome cannot slip through an old `match`.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use crate::key::Key;

/// How a delivery ended. Stored as the small integer of [`Outcome::number`].
///
/// `Duplicate` is said of a delivery only; the ledger row keeps the first outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// First time, done. The effect is kept, the key is held.
    Applied,
    /// The state says it is already so, or the message is stale. No effect, the key is held.
    Ignored,
    /// A definite business no. No effect, the key is held: a later copy gets the same no.
    Refused,
    /// The key was there with the same content: nothing was done.
    Duplicate,
    /// Not yet: kept in the database until its predecessor, its time or its deadline comes.
    Parked,
    /// Can never be handled as it is; kept as a dead letter. The key is not held.
    Dead,
}

impl Outcome {
    /// All outcomes, in the order in which summaries list them.
    pub const ALL: [Self; 6] = [
        Self::Applied,
        Self::Ignored,
        Self::Refused,
        Self::Duplicate,
        Self::Parked,
        Self::Dead,
    ];

    /// The number stored in `semel_ledger.outcome`. Never reused, never renumbered.
    #[must_use]
    pub const fn number(self) -> i16 {
        match self {
            Self::Applied => 1,
            Self::Ignored => 2,
            Self::Refused => 3,
            Self::Parked => 4,
            Self::Dead => 5,
            Self::Duplicate => 6,
        }
    }

    /// The outcome of a stored number, or `None` for a number that no version has written.
    #[must_use]
    pub fn from_number(number: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|o| o.number() == number)
    }

    /// The word used in JSON, metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Ignored => "ignored",
            Self::Refused => "refused",
            Self::Duplicate => "duplicate",
            Self::Parked => "parked",
            Self::Dead => "dead",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A reason in lower snake case, such as `insufficient_funds`: part of the contract with users.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(Cow<'static, str>);

impl Code {
    /// A code known when the program is written.
    ///
    /// # Panics
    /// In const evaluation or at run time, when the text is not lower snake case.
    #[must_use]
    pub const fn new(text: &'static str) -> Self {
        let bytes = text.as_bytes();
        assert!(
            !bytes.is_empty() && bytes.len() <= 64,
            "a code has 1 to 64 characters"
        );
        let mut i = 0;
        while i < bytes.len() {
            assert!(
                matches!(bytes[i], b'a'..=b'z' | b'0'..=b'9' | b'_'),
                "a code is lower snake case"
            );
            i += 1;
        }
        Self(Cow::Borrowed(text))
    }

    /// A code read back from the database.
    #[must_use]
    pub fn stored(text: String) -> Self {
        Self(Cow::Owned(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Codes of the engine itself: what may make a message `dead` before or around the handler.
pub mod codes {
    use super::Code;

    /// Larger than the consumer's limit. The first 64 KiB and the hash are kept.
    pub const TOO_LARGE: Code = Code::new("too_large");
    /// Not what the consumer reads: not one JSON object, duplicate names, ill-typed fields.
    pub const MALFORMED: Code = Code::new("malformed");
    /// No usable key: never guessed, never hashed, never a timestamp.
    pub const NO_KEY: Code = Code::new("no_key");
    /// Older than the horizon of a pruned ledger: its key may be gone, so it is never applied.
    pub const TOO_OLD: Code = Code::new("too_old");
    /// The same key with other content: a Clash.
    pub const KEY_REUSED: Code = Code::new("key_reused");
    /// The handler does not know this type of message.
    pub const UNKNOWN_OP: Code = Code::new("unknown_op");
    /// The message breaks the handler.
    pub const POISON: Code = Code::new("poison");
    /// Parked until its deadline, and then there was no final answer: the handler still waits, or the message
    /// no longer binds to its key.
    pub const PARKED_TOO_LONG: Code = Code::new("parked_too_long");
}

/// What a parked message waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Awaiting {
    /// The kind of thing, such as `round`.
    pub kind: Code,
    /// Its identity. The unit that makes it true names the same key in [`Answer::Applied::wakes`].
    pub key: Key,
}

/// What a handler says of one message. The engine makes the [`Outcome`] of it; the outcomes that are
/// missing here (`duplicate`, a Clash) cannot be forged.
///
/// ```
/// use semel_core::{Answer, Code};
///
/// const INSUFFICIENT_FUNDS: Code = Code::new("insufficient_funds");
/// let answer = Answer::refused(INSUFFICIENT_FUNDS);
/// assert!(matches!(answer, Answer::Refused { .. }));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Done, for the first time.
    Applied {
        /// Stored with the key when it cannot be derived later.
        reply: Option<Bytes>,
        /// What this message made true: messages parked for these keys are tried again after the commit.
        wakes: Vec<Key>,
    },
    /// The state says it is already so, or that the message is stale.
    Ignored {
        /// Why.
        reason: Code,
        /// Stored with the key.
        reply: Option<Bytes>,
    },
    /// A definite business no: sticky.
    Refused {
        /// Why.
        code: Code,
        /// Stored with the key.
        reply: Option<Bytes>,
    },
    /// Not yet. Parked until the awaited thing comes true or the deadline passes.
    NotYet {
        /// What it waits for.
        awaiting: Awaiting,
        /// How long it waits before the handler runs a last time and must answer finally.
        park_for_ms: u64,
    },
    /// Can never be handled: `malformed`, `unknown_op`, or a code that the handler declares.
    Dead {
        /// Why.
        code: Code,
        /// A sentence for the operator.
        detail: String,
        /// The payload's field that is at fault, nested as `legs/0/amount`.
        field: Option<String>,
    },
}

impl Answer {
    /// Applied, nothing to store, nobody to wake.
    #[must_use]
    pub const fn applied() -> Self {
        Self::Applied {
            reply: None,
            wakes: Vec::new(),
        }
    }

    /// Ignored for `reason`.
    #[must_use]
    pub const fn ignored(reason: Code) -> Self {
        Self::Ignored {
            reason,
            reply: None,
        }
    }

    /// Refused with `code`.
    #[must_use]
    pub const fn refused(code: Code) -> Self {
        Self::Refused { code, reply: None }
    }

    /// Not yet: `kind` with identity `key` is unknown so far.
    #[must_use]
    pub const fn not_yet(kind: Code, key: Key, park_for_ms: u64) -> Self {
        Self::NotYet {
            awaiting: Awaiting { kind, key },
            park_for_ms,
        }
    }

    /// Dead with `code`.
    #[must_use]
    pub fn dead(code: Code, detail: impl Into<String>) -> Self {
        Self::Dead {
            code,
            detail: detail.into(),
            field: None,
        }
    }

    /// The outcome that the engine makes of this answer for a fresh message.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Applied { .. } => Outcome::Applied,
            Self::Ignored { .. } => Outcome::Ignored,
            Self::Refused { .. } => Outcome::Refused,
            Self::NotYet { .. } => Outcome::Parked,
            Self::Dead { .. } => Outcome::Dead,
        }
    }

    /// The code of an ignored, refused or dead answer.
    #[must_use]
    pub const fn code(&self) -> Option<&Code> {
        match self {
            Self::Ignored { reason: code, .. }
            | Self::Refused { code, .. }
            | Self::Dead { code, .. } => Some(code),
            Self::Applied { .. } | Self::NotYet { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_numbers_come_back_as_the_same_outcome() {
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::from_number(outcome.number()), Some(outcome));
        }
        assert_eq!(Outcome::from_number(0), None);
    }

    #[test]
    #[should_panic(expected = "lower snake case")]
    fn a_code_in_another_spelling_is_a_bug() {
        let _ = Code::new("Insufficient-Funds");
    }
}
