//! Keys: the deterministic identity of one business operation, as a published format.
//!
//! Every key is 16 bytes, a UUID. A UUID is its own key; everything else is derived by SHA-256, so that each
//! language computes the same key (`docs/reference/keys.md`, `vectors/key.json`). What is empty, missing or too
//! long gives no key (T78): this room never guesses one, and never makes one of a time or a broker's
//! coordinates.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::json::Json;

mod rule;
#[cfg(test)]
mod tests;

pub use rule::{BadRule, Identity, Inputs, KeyRule, Normaliser, PartRule, PartSource};

/// The longest part of a key, in bytes, before and after normalising.
///
/// Longer than any id seen in the public documentation of payment and game providers (100 to 255), short enough
/// to keep as readable text beside the row. The same on every ledger, since the key itself is always 16 bytes.
pub const PART_BYTES_MAX: usize = 512;

/// The most parts one key may have: enough for provider, tenant, table, round, player and action twice over.
pub const PARTS_MAX: usize = 16;

/// 2000-01-01T00:00:00Z in Unix ms. An operation's own time before it is a mistake of the producer, mostly seconds
/// where milliseconds were meant.
pub const TIME_MS_MIN: u64 = 946_684_800_000;

/// How far an operation's own time may lie ahead of the database's: a day, for clocks in a wrong time zone.
pub const TIME_AHEAD_MS_MAX: u64 = 86_400_000;

/// The last Unix ms that 48 bits can hold (the year 10889).
const TIME_MS_48_BITS_MAX: u64 = (1 << 48) - 1;

/// The variant `111` of inner keys, in byte 8. Every derived key that may be sent has the variant `10`.
const INNER_VARIANT: u8 = 0xE0;

/// First bytes of every preimage: the name and number of the format.
const FORMAT: &[u8] = b"semel:key:1\0";

/// The identity of one business operation within a consumer.
///
/// ```
/// use semel_core::{Key, Part};
///
/// let key = Key::derive(&[Part::Text("acme"), Part::Text("bet-42")])?;
/// assert_eq!(key.to_string(), "4a4c7068-f922-85dc-a87c-b02c5b9f134a");
///
/// // A UUID is its own key, in any spelling.
/// let own = Key::derive(&[Part::Text("{0190D6F3-79F9-7000-8000-0000DEADBEEF}")])?;
/// assert_eq!(own.to_string(), "0190d6f3-79f9-7000-8000-0000deadbeef");
/// # Ok::<(), semel_core::NoKey>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 16]);

/// One part of a key. Its kind is part of the identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// Kind `s`: text, byte for byte. Numbers and booleans are their source text.
    Text(&'a str),
    /// Kind `u`: the 16 bytes of a UUID.
    Uuid([u8; 16]),
    /// Kind `x`: bytes that are not text.
    Raw(&'a [u8]),
}

impl Part<'_> {
    fn kind(&self) -> u8 {
        match self {
            Part::Text(_) => b's',
            Part::Uuid(_) => b'u',
            Part::Raw(_) => b'x',
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Part::Text(text) => text.as_bytes(),
            Part::Uuid(uuid) => uuid,
            Part::Raw(bytes) => bytes,
        }
    }

    fn check(&self, name: impl FnOnce() -> String) -> Result<(), NoKey> {
        match self.bytes().len() {
            0 => Err(NoKey {
                part: name(),
                why: Lack::Empty,
            }),
            1..=PART_BYTES_MAX => Ok(()),
            bytes => Err(NoKey {
                part: name(),
                why: Lack::TooLong { bytes },
            }),
        }
    }

    /// A value that is a UUID is its own key, unless it lies in the space of [inner keys](Key::inner).
    fn own_key(&self) -> Option<Key> {
        let own = match self {
            Part::Uuid(uuid) => Some(Key(*uuid)),
            Part::Text(text) => uuid_of(text).map(Key),
            Part::Raw(_) => None,
        };
        own.filter(|key| !key.is_inner())
    }
}

impl Key {
    /// The key with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, as every ledger stores them.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Its bytes, by value.
    pub const fn into_bytes(self) -> [u8; 16] {
        self.0
    }

    /// A new time-ordered key: a UUIDv7 (RFC 9562, section 5.7) of a Unix time in ms and 74 of these random bits.
    ///
    /// A time beyond 48 bits (the year 10889) counts as the last one that fits.
    pub fn v7(unix_ms: u64, random: [u8; 10]) -> Self {
        let mut bytes = [0; 16];
        bytes[6..].copy_from_slice(&random);
        Self(bytes)
            .with_time(unix_ms.min(TIME_MS_48_BITS_MAX))
            .with_version(7)
    }

    /// The key of these parts: a single UUID is the key, anything else is derived from the digest of all parts.
    ///
    /// # Errors
    ///
    /// [`NoKey`] if there is no part, more than [`PARTS_MAX`], or a part that is empty or longer than
    /// [`PART_BYTES_MAX`].
    pub fn derive(parts: &[Part<'_>]) -> Result<Self, NoKey> {
        check(parts)?;
        Ok(own_key(parts).unwrap_or_else(|| Self(leading_16(&digest(parts))).with_version(8)))
    }

    /// Like [`derive`](Key::derive), but time-ordered: bytes 0–5 of a derived key are the operation's own time. The
    /// time is part of the identity. A single UUID is the key, whatever the time.
    ///
    /// # Errors
    ///
    /// As `derive`; and a time before [`TIME_MS_MIN`] or beyond 48 bits. How far it may lie ahead of the database's
    /// time is for the caller, who knows that time ([`KeyRule::identify`]).
    pub fn derive_at(parts: &[Part<'_>], unix_ms: u64) -> Result<Self, NoKey> {
        check(parts)?;
        if !(TIME_MS_MIN..=TIME_MS_48_BITS_MAX).contains(&unix_ms) {
            return Err(NoKey {
                part: "the operation's own time".into(),
                why: Lack::TimeOutOfRange { unix_ms },
            });
        }
        Ok(own_key(parts).unwrap_or_else(|| {
            let mut bytes = [0; 16];
            bytes[6..].copy_from_slice(&digest(parts)[..10]);
            Self(bytes).with_time(unix_ms).with_version(8)
        }))
    }

    /// The key of an id in a payload, that is text or a number (as its source text, so that `123` and `"123"` are one
    /// id): what an operation calls itself and what others refer to it by.
    ///
    /// # Errors
    ///
    /// [`NoKey`] for null, any other kind of value, and text that is empty or too long.
    pub fn of_json(id: &Json<'_>) -> Result<Self, NoKey> {
        match id {
            Json::Text(text) => Self::derive(&[Part::Text(text)]),
            Json::Number(source) => Self::derive(&[Part::Text(source)]),
            Json::Null => Err(NoKey {
                part: "the id".into(),
                why: Lack::Missing,
            }),
            Json::Bool(_) | Json::Array(_) | Json::Object(_) => Err(NoKey {
                part: "the id".into(),
                why: Lack::IllTyped {
                    found: id.kind(),
                    wanted: "text or a number",
                },
            }),
        }
    }

    /// The key of something that exists once per operation, such as the `expire` of a hold: derived from the parts
    /// (this key, name).
    ///
    /// # Errors
    ///
    /// [`NoKey`] if the name is empty or longer than [`PART_BYTES_MAX`].
    pub fn child(self, name: &str) -> Result<Self, NoKey> {
        Self::derive(&[Part::Uuid(self.0), Part::Text(name)])
    }

    /// The key of the nth of several things that one operation makes, such as messages for the outbox: derived from
    /// the parts (this key, name, the number in decimal digits).
    ///
    /// # Errors
    ///
    /// [`NoKey`] if the name is empty or longer than [`PART_BYTES_MAX`].
    pub fn numbered_child(self, name: &str, number: u32) -> Result<Self, NoKey> {
        Self::derive(&[
            Part::Uuid(self.0),
            Part::Text(name),
            Part::Text(&number.to_string()),
        ])
    }

    /// The inner key of the nth thing that a ledger makes of an operation for itself, such as the row of a group's
    /// leg: derived from the parts (this key, name, the number in decimal digits), and marked by the variant that
    /// RFC 9562 keeps for the future. No id and no part of a message becomes such a key, so no sender can take it
    /// first. What is sent on must not have one: use [`numbered_child`](Key::numbered_child).
    ///
    /// # Errors
    ///
    /// [`NoKey`] if the name is empty or longer than [`PART_BYTES_MAX`].
    pub fn inner(self, name: &str, number: u32) -> Result<Self, NoKey> {
        let mut key = self.numbered_child(name, number)?;
        key.0[8] |= INNER_VARIANT;
        Ok(key)
    }

    /// Is it an [inner key](Key::inner), of version 8 and the variant kept for the future?
    #[must_use]
    pub const fn is_inner(&self) -> bool {
        self.0[6] >> 4 == 8 && self.0[8] & INNER_VARIANT == INNER_VARIANT
    }

    /// The Unix time in ms inside a UUIDv7. `None` for every other key: the time of a derived key is known to the
    /// rule that made it, and is never guessed from its bits.
    pub fn v7_unix_ms(&self) -> Option<u64> {
        let is_v7 = self.0[6] >> 4 == 7 && self.0[8] >> 6 == 0b10;
        is_v7.then(|| self.leading_48_bits())
    }

    fn leading_48_bits(&self) -> u64 {
        self.0[..6]
            .iter()
            .fold(0, |ms, &byte| ms << 8 | u64::from(byte))
    }

    fn with_time(mut self, unix_ms: u64) -> Self {
        self.0[..6].copy_from_slice(&unix_ms.to_be_bytes()[2..]);
        self
    }

    /// Sets the version and the variant of RFC 9562.
    fn with_version(mut self, version: u8) -> Self {
        self.0[6] = version << 4 | self.0[6] & 0x0F;
        self.0[8] = 0x80 | self.0[8] & 0x3F;
        self
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.encode(&mut [0; 36]))
    }
}

impl Key {
    /// Writes the lower-case hyphenated form into `buffer`.
    pub fn encode<'b>(&self, buffer: &'b mut [u8; 36]) -> &'b str {
        Uuid::from_bytes(self.0).hyphenated().encode_lower(buffer)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

impl FromStr for Key {
    type Err = NoKey;

    /// Reads a UUID in any spelling: upper or lower case, with or without hyphens, in braces or after `urn:uuid:`.
    fn from_str(text: &str) -> Result<Self, NoKey> {
        uuid_of(text).map(Self).ok_or_else(|| NoKey {
            part: format!("`{text}`"),
            why: Lack::IllTyped {
                found: "text",
                wanted: "a UUID",
            },
        })
    }
}

/// Why there is no key: the message ends `dead(no_key)`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no key: {part} {why}")]
pub struct NoKey {
    /// The part it is about, as the rule writes it (`` `/id` ``, `part 2`).
    pub part: String,
    /// What it lacks.
    pub why: Lack,
}

impl NoKey {
    /// The same lack, of a part with this name.
    #[must_use]
    pub fn of(self, part: &str) -> Self {
        Self {
            part: format!("`{part}`"),
            ..self
        }
    }
}

/// What a part of a key lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// Not there, or null.
    #[error("is missing or null")]
    Missing,
    /// There, but with nothing in it.
    #[error("is empty")]
    Empty,
    /// Longer than [`PART_BYTES_MAX`].
    #[error("has {bytes} bytes, more than {PART_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not of the kind a key is made of, or not what a normaliser takes.
    #[error("is {found}, not {wanted}")]
    IllTyped {
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// A header given more than once, with different values.
    #[error("is given more than once, with different values")]
    Ambiguous,
    /// The operation's own time is before 2000 or more than a day ahead of the database's.
    #[error("is {unix_ms} (Unix ms), before 2000-01-01 or more than a day ahead of the database")]
    TimeOutOfRange {
        /// The time.
        unix_ms: u64,
    },
    /// No part at all, or more than [`PARTS_MAX`].
    #[error("are {parts}, not 1 to {PARTS_MAX}")]
    PartCount {
        /// How many there are.
        parts: usize,
    },
}

fn check(parts: &[Part<'_>]) -> Result<(), NoKey> {
    if parts.is_empty() || parts.len() > PARTS_MAX {
        return Err(NoKey {
            part: "the parts".into(),
            why: Lack::PartCount { parts: parts.len() },
        });
    }
    parts
        .iter()
        .enumerate()
        .try_for_each(|(i, part)| part.check(|| format!("part {}", i + 1)))
}

fn own_key(parts: &[Part<'_>]) -> Option<Key> {
    if let [part] = parts {
        part.own_key()
    } else {
        None
    }
}

/// A single part that is spelled as a UUID and is not its own key is hashed as the UUID that it is, so that every
/// spelling of it gives one key.
fn digest(parts: &[Part<'_>]) -> [u8; 32] {
    if let [Part::Text(text)] = parts
        && let Some(uuid) = uuid_of(text)
    {
        return digest_of(&[Part::Uuid(uuid)]);
    }
    digest_of(parts)
}

/// SHA-256 of the preimage; `parts` were checked, so a length fits in its four bytes.
fn digest_of(parts: &[Part<'_>]) -> [u8; 32] {
    // Most keys fit in here: one call of the hash instead of one for each piece.
    let mut short = [0; 192];
    let length = FORMAT.len()
        + parts
            .iter()
            .map(|part| 5 + part.bytes().len())
            .sum::<usize>();
    if length <= short.len() {
        let mut at = 0;
        preimage(parts, |piece| {
            short[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        });
        return Sha256::digest(&short[..at]).into();
    }
    let mut hash = Sha256::new();
    preimage(parts, |piece| hash.update(piece));
    hash.finalize().into()
}

fn preimage(parts: &[Part<'_>], mut put: impl FnMut(&[u8])) {
    put(FORMAT);
    for part in parts {
        let bytes = part.bytes();
        let length = u32::try_from(bytes.len()).expect("a part has at most 512 bytes");
        put(&[part.kind()]);
        put(&length.to_be_bytes());
        put(bytes);
    }
}

pub(crate) fn leading_16(digest: &[u8; 32]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    bytes
}

/// A UUID in one of its spellings: 32 hexadecimal digits or 8-4-4-4-12 of them, plain, in braces or after `urn:uuid:`.
fn uuid_of(text: &str) -> Option<[u8; 16]> {
    if !(32..=45).contains(&text.len()) {
        return None;
    }
    let inside = without_prefix(text, "urn:uuid:")
        .or_else(|| {
            text.strip_prefix('{')
                .and_then(|rest| rest.strip_suffix('}'))
        })
        .unwrap_or(text);
    match inside.len() {
        32 | 36 => Uuid::try_parse(inside).ok().map(Uuid::into_bytes),
        _ => None,
    }
}

fn without_prefix<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}
