//! Fingerprints: what content is bound to a key.
//!
//! A copy of a message has the fingerprint of the first delivery; other content under the same key is a Clash and
//! never a duplicate. SHA-256 cut to 128 bits decides (T72: a weak sum takes different credits for copies); the
//! 16-bit sums beside it only name the field that differs. The format is published (`docs/reference/keys.md`,
//! `vectors/fingerprint.json`). This room compares content and never interprets it.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::json::{Json, Pointer};
use crate::key::leading_16;

mod content;
mod scribe;
#[cfg(test)]
mod tests;

pub use content::{Canon, Content};

use scribe::Scribe;

/// The most field sums kept with a row: 64 bytes. An operation with more leaves than that is told apart by its
/// top-level fields.
pub const FIELD_SUMS_MAX: usize = 32;

/// SHA-256 of canonical content, cut to its first 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Of content that is not compared at all ([`Policy::None`]).
    pub const NONE: Self = Self([0; 16]);

    /// The fingerprint of raw bytes.
    ///
    /// ```
    /// use semel_core::Fingerprint;
    ///
    /// assert_eq!(Fingerprint::of_bytes(b"").to_string(), "e3b0c44298fc1c149afbf4c8996fb924");
    /// ```
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(leading_16(&Sha256::digest(bytes).into()))
    }

    /// The fingerprint with these bytes, as read from a ledger.
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
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// How a fingerprint was made. Two fingerprints are comparable only under one scheme; a row of another scheme is
/// Seen unchecked, and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scheme(pub i16);

impl Scheme {
    /// Nothing is compared.
    pub const NONE: Self = Self(0);
    /// The whole payload, version 1 of the format.
    pub const ALL: Self = Self(1);
    /// First number of the schemes that hash a list of pointers; below are numbers given by hand.
    const LISTED_MIN: u16 = 256;

    /// A scheme of a handler that fingerprints content of its own ([`Content`]): 16 to 255. A new way to normalise
    /// takes a new number.
    ///
    /// # Panics
    ///
    /// Below 16: those numbers are Semel's. In a constant, that is an error of the compiler.
    pub const fn handlers_own(number: u8) -> Self {
        assert!(number >= 16, "schemes below 16 are Semel's own");
        Self(number as i16)
    }

    /// A number made of the list, so that a changed list is another scheme and not a Clash of every copy.
    fn of_list(kind: &str, pointers: &Pointers) -> Self {
        let mut hash = Sha256::new_with_prefix(b"semel:scheme:1\0");
        hash.update(kind);
        for pointer in &pointers.0 {
            hash.update(b"\0");
            hash.update(pointer.as_str());
        }
        let digest = hash.finalize();
        let span = i16::MAX.unsigned_abs() - Self::LISTED_MIN + 1;
        let number = Self::LISTED_MIN + u16::from_be_bytes([digest[0], digest[1]]) % span;
        Self(i16::try_from(number).expect("the number is at most i16::MAX"))
    }
}

/// Which part of a payload is bound to its key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Policy {
    /// All of it: the default.
    #[default]
    All,
    /// All of a JSON payload but these values (a time of sending, a trace id).
    Except(Pointers),
    /// These values of a JSON payload; absent ones are left out.
    Fields(Pointers),
    /// Nothing: every message with a known key is a duplicate, whatever it says.
    None,
}

/// JSON pointers, sorted and each once, so that the order in a config does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pointers(Vec<Pointer>);

impl FromIterator<Pointer> for Pointers {
    fn from_iter<I: IntoIterator<Item = Pointer>>(pointers: I) -> Self {
        let mut pointers: Vec<Pointer> = pointers.into_iter().collect();
        pointers.sort_unstable();
        pointers.dedup();
        Self(pointers)
    }
}

impl Policy {
    /// The number stored with each fingerprint made under this policy.
    pub fn scheme(&self) -> Scheme {
        match self {
            Self::All => Scheme::ALL,
            Self::Except(pointers) => Scheme::of_list("except", pointers),
            Self::Fields(pointers) => Scheme::of_list("fields", pointers),
            Self::None => Scheme::NONE,
        }
    }

    /// Can it only be followed where the payload is JSON?
    pub fn needs_payload(&self) -> bool {
        matches!(self, Self::Except(_) | Self::Fields(_))
    }

    /// The fingerprint and the field sums of a payload. `json` is the same payload, where it was read as JSON; one
    /// that was not is bound as its raw bytes and has no sums.
    ///
    /// ```
    /// use semel_core::{Json, Policy};
    ///
    /// let (one, two) = (r#"{"a":1,"b":2}"#, r#"{ "b": 2, "a": 1 }"#);
    /// let bind = |text: &str| Policy::All.bind(text.as_bytes(), Json::parse(text.as_bytes()).ok().as_ref());
    /// assert_eq!(bind(one), bind(two));
    /// ```
    pub fn bind(&self, payload: &[u8], json: Option<&Json<'_>>) -> (Fingerprint, FieldSums) {
        match json {
            _ if *self == Self::None => (Fingerprint::NONE, FieldSums::default()),
            None => (Fingerprint::of_bytes(payload), FieldSums::default()),
            Some(json) => {
                let mut scribe = Scribe::new();
                self.write(json, &mut scribe);
                scribe.finish()
            }
        }
    }

    /// The field of `json`, nested as `legs/0/amount`, by which it differs from the content whose sums were stored.
    ///
    /// `None` where no field can be named: the payload only lacks one that was there, or a 16-bit sum agrees by
    /// chance.
    pub fn differing(&self, stored: &FieldSums, json: &Json<'_>) -> Option<String> {
        let mut scribe = Scribe::naming();
        self.write(json, &mut scribe);
        scribe.differing(stored)
    }

    fn write(&self, json: &Json<'_>, scribe: &mut Scribe) {
        match self {
            Self::All | Self::None => scribe.json(json),
            Self::Except(pointers) => {
                let unwanted: Vec<&[String]> = pointers.0.iter().map(Pointer::segments).collect();
                scribe.json_without(json, &unwanted);
            }
            Self::Fields(pointers) => {
                let found = pointers
                    .0
                    .iter()
                    .filter_map(|pointer| Some((pointer.as_str(), json.at(pointer)?)));
                scribe.listed(found);
            }
        }
    }
}

/// One 16-bit sum per leaf of the bound content, in canonical order: enough to name the field of a Clash. They
/// decide nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FieldSums {
    length: u8,
    bytes: [u8; 2 * FIELD_SUMS_MAX],
}

impl FieldSums {
    /// The bytes a ledger stores: two per sum, big-endian.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The sums a ledger stored. What is beyond [`FIELD_SUMS_MAX`], or half a sum, is left out: sums only name.
    pub fn from_bytes(stored: &[u8]) -> Self {
        let sums = stored
            .chunks_exact(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        Self::from_sums(sums)
    }

    fn from_sums(sums: impl Iterator<Item = u16>) -> Self {
        let mut kept = Self::default();
        for (sum, place) in sums.zip(kept.bytes.chunks_exact_mut(2)) {
            place.copy_from_slice(&sum.to_be_bytes());
            kept.length += 2;
        }
        kept
    }

    fn iter(&self) -> impl Iterator<Item = u16> {
        self.as_bytes()
            .chunks_exact(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
    }
}

impl Default for FieldSums {
    fn default() -> Self {
        Self {
            length: 0,
            bytes: [0; 2 * FIELD_SUMS_MAX],
        }
    }
}

impl fmt::Debug for FieldSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FieldSums(")?;
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}
