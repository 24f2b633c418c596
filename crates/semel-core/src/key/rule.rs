//! Key rules: how a consumer makes the key of a message, as the config writes it.
//!
//! A rule is a list of parts, each taken from the payload, a header, the message key or a constant, and changed
//! only by normalisers that it names. It looks at nothing else: no offset, no broker id, no time of arrival.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use unicode_normalization::{UnicodeNormalization, is_nfc};

use super::{
    Key, Lack, NoKey, PART_BYTES_MAX, PARTS_MAX, Part, TIME_AHEAD_MS_MAX, own_key, uuid_of,
};
use crate::json::{Json, Pointer};

/// What a rule may look at.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The payload, where it was read as JSON.
    pub payload: Option<&'a Json<'a>>,
    /// The headers, in the order of the wire.
    pub headers: &'a [(String, Bytes)],
    /// The broker's message key.
    pub message_key: Option<&'a [u8]>,
    /// The database's time in Unix ms, as last known: only for the upper limit of `key_time`.
    pub now_ms: u64,
}

/// What a rule finds: the key, and how people call the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity<'a> {
    /// The key.
    pub key: Key,
    /// The source text as it came: of several parts, joined by `/`; bytes that are not text as `0x…`.
    pub id: Cow<'a, str>,
    /// The operation's own time in Unix ms, where the key holds one: by `key_time`, a UUIDv7 or a declared ULID.
    pub unix_ms: Option<u64>,
}

/// How a consumer makes keys.
///
/// ```
/// use semel_core::Json;
/// use semel_core::key::{Inputs, KeyRule};
///
/// let rule = KeyRule::parse(["const:acme", "lower(trim(/ref))"], None)?;
/// let payload = Json::parse(br#"{"ref": " Bet-42 "}"#)?;
/// let inputs = Inputs { payload: Some(&payload), headers: &[], message_key: None, now_ms: 0 };
/// let identity = rule.identify(&inputs)?;
/// assert_eq!(identity.key.to_string(), "4a4c7068-f922-85dc-a87c-b02c5b9f134a");
/// assert_eq!(identity.id, "acme/ Bet-42 ");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRule {
    parts: Vec<PartRule>,
    time: Option<Pointer>,
}

/// Where one part comes from, and what is done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRule {
    /// Where it comes from.
    pub source: PartSource,
    /// What is done to it, first to last.
    pub normalisers: Vec<Normaliser>,
}

/// Where a part comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartSource {
    /// `/id`: a value of the payload.
    Pointer(Pointer),
    /// `header:NAME`: a header; the case of ASCII letters in its name does not matter.
    Header(String),
    /// `message_key`: the broker's message key.
    MessageKey,
    /// `const:TEXT`: always the same text.
    Constant(String),
}

/// What may be done to a part before it becomes part of the key. None of them depends on a version of Unicode's
/// case tables, so that an upgrade never changes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normaliser {
    /// A UUID in any spelling (or its 16 bytes) becomes kind `u`; anything else gives no key.
    Uuid,
    /// A ULID becomes kind `u`; anything else gives no key.
    Ulid,
    /// An integer loses leading zeros, and zero its sign; anything else gives no key.
    Int,
    /// Spaces, tabs, carriage returns and line feeds at both ends go.
    Trim,
    /// `A` to `Z` become `a` to `z`; no other letter changes.
    Lower,
    /// Unicode normalization form C.
    Nfc,
}

impl Normaliser {
    const ALL: [(&'static str, Self); 6] = [
        ("uuid", Self::Uuid),
        ("ulid", Self::Ulid),
        ("int", Self::Int),
        ("trim", Self::Trim),
        ("lower", Self::Lower),
        ("nfc", Self::Nfc),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Uuid => "uuid",
            Self::Ulid => "ulid",
            Self::Int => "int",
            Self::Trim => "trim",
            Self::Lower => "lower",
            Self::Nfc => "nfc",
        }
    }

    /// Does it end as the bytes of a UUID, which no other normaliser can take?
    fn ends_as_uuid(self) -> bool {
        matches!(self, Self::Uuid | Self::Ulid)
    }
}

/// A rule that can make no sensible key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no key rule: {why}")]
pub struct BadRule {
    text: String,
    why: String,
}

impl BadRule {
    fn new(text: impl fmt::Display, why: impl Into<String>) -> Self {
        Self {
            text: text.to_string(),
            why: why.into(),
        }
    }
}

impl KeyRule {
    /// A rule of these parts; `time` leads to the operation's own time (`key_time`).
    ///
    /// # Errors
    ///
    /// [`BadRule`] without parts, with more than [`PARTS_MAX`], with constants alone (every message would be one
    /// operation), or with normalisers that cannot follow one another.
    pub fn new(parts: Vec<PartRule>, time: Option<Pointer>) -> Result<Self, BadRule> {
        let rule = Self { parts, time };
        if rule.parts.is_empty() || rule.parts.len() > PARTS_MAX {
            return Err(BadRule::new(
                &rule,
                format!("it needs 1 to {PARTS_MAX} parts"),
            ));
        }
        if rule
            .parts
            .iter()
            .all(|part| matches!(part.source, PartSource::Constant(_)))
        {
            return Err(BadRule::new(
                &rule,
                "of constants alone, all messages would be one operation",
            ));
        }
        rule.parts.iter().try_for_each(PartRule::check)?;
        Ok(rule)
    }

    /// A rule from the texts of the config: one per part.
    ///
    /// # Errors
    ///
    /// [`BadRule`], as [`PartRule::from_str`] and [`KeyRule::new`].
    pub fn parse<'t>(
        parts: impl IntoIterator<Item = &'t str>,
        time: Option<&str>,
    ) -> Result<Self, BadRule> {
        let parts = parts
            .into_iter()
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        let time =
            time.map(|text| Pointer::parse(text).map_err(|e| BadRule::new(text, e.to_string())));
        Self::new(parts, time.transpose()?)
    }

    /// Its parts.
    pub fn parts(&self) -> &[PartRule] {
        &self.parts
    }

    /// Where the operation's own time is, if the rule declares one.
    pub fn time(&self) -> Option<&Pointer> {
        self.time.as_ref()
    }

    /// Does it look into the payload, so that the payload has to be read as JSON?
    pub fn needs_payload(&self) -> bool {
        self.time.is_some()
            || self
                .parts
                .iter()
                .any(|part| matches!(part.source, PartSource::Pointer(_)))
    }

    /// The key of a message and the text people know it by.
    ///
    /// # Errors
    ///
    /// [`NoKey`], which names the part.
    pub fn identify<'a>(&'a self, inputs: &Inputs<'a>) -> Result<Identity<'a>, NoKey> {
        let unix_ms = self
            .time
            .as_ref()
            .map(|pointer| own_time(pointer, inputs))
            .transpose()?;
        if let [only] = &self.parts[..] {
            let found = only.find(inputs, Sole::Yes)?;
            let id = found.source_text();
            return identity(&[found.as_part()], id, unix_ms, only.is_ulid());
        }
        let found: Vec<Found<'a>> = self
            .parts
            .iter()
            .map(|part| part.find(inputs, Sole::No))
            .collect::<Result<_, _>>()?;
        let parts: Vec<Part<'_>> = found.iter().map(Found::as_part).collect();
        let texts: Vec<Cow<'_, str>> = found.iter().map(Found::source_text).collect();
        identity(&parts, Cow::Owned(texts.join("/")), unix_ms, false)
    }
}

impl fmt::Display for KeyRule {
    /// The rule as the config writes it; two rules with one text make the same keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.parts.iter().map(PartRule::to_string).collect();
        write!(f, "{texts:?}")?;
        self.time
            .as_ref()
            .map_or(Ok(()), |time| write!(f, " at {time}"))
    }
}

fn identity<'a>(
    parts: &[Part<'_>],
    id: Cow<'a, str>,
    own_time: Option<u64>,
    ulid: bool,
) -> Result<Identity<'a>, NoKey> {
    let key = match own_time {
        Some(unix_ms) => Key::derive_at(parts, unix_ms)?,
        None => Key::derive(parts)?,
    };
    let inside = || {
        if ulid {
            Some(key.leading_48_bits())
        } else {
            own_key(parts)?.v7_unix_ms()
        }
    };
    Ok(Identity {
        key,
        id,
        unix_ms: own_time.or_else(inside),
    })
}

/// Is the part the whole key?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sole {
    Yes,
    No,
}

impl PartRule {
    fn check(&self) -> Result<(), BadRule> {
        let before_last = self
            .normalisers
            .split_last()
            .map_or(&[][..], |(_, rest)| rest);
        if before_last
            .iter()
            .any(|normaliser| normaliser.ends_as_uuid())
        {
            return Err(BadRule::new(
                self,
                "nothing can be done to a part after `uuid` or `ulid`",
            ));
        }
        match &self.source {
            PartSource::Constant(text) if text.is_empty() || text.len() > PART_BYTES_MAX => Err(
                BadRule::new(self, format!("a constant has 1 to {PART_BYTES_MAX} bytes")),
            ),
            PartSource::Header(name) if name.is_empty() => {
                Err(BadRule::new(self, "the header has no name"))
            }
            _ => Ok(()),
        }
    }

    fn is_ulid(&self) -> bool {
        self.normalisers.last() == Some(&Normaliser::Ulid)
    }

    fn find<'a>(&'a self, inputs: &Inputs<'a>, sole: Sole) -> Result<Found<'a>, NoKey> {
        let lack = |why| NoKey {
            part: format!("`{self}`"),
            why,
        };
        let source = self.source.find(inputs, sole).map_err(lack)?;
        source.as_part().check(|| format!("`{self}`"))?;
        if self.normalisers.is_empty() {
            return Ok(Found {
                normal: None,
                source,
            });
        }
        let mut normal = source.clone();
        for normaliser in &self.normalisers {
            normal = normaliser.apply(normal).map_err(lack)?;
        }
        normal.as_part().check(|| format!("`{self}`"))?;
        Ok(Found {
            normal: Some(normal),
            source,
        })
    }
}

impl fmt::Display for PartRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for normaliser in self.normalisers.iter().rev() {
            write!(f, "{}(", normaliser.name())?;
        }
        match &self.source {
            PartSource::Pointer(pointer) => write!(f, "{pointer}")?,
            PartSource::Header(name) => write!(f, "header:{name}")?,
            PartSource::MessageKey => f.write_str("message_key")?,
            PartSource::Constant(text) => write!(f, "const:{text}")?,
        }
        self.normalisers.iter().try_for_each(|_| f.write_str(")"))
    }
}

impl FromStr for PartRule {
    type Err = BadRule;

    /// `/id`, `header:NAME`, `message_key`, `const:TEXT`, and normalisers around them: `lower(trim(/id))`.
    fn from_str(text: &str) -> Result<Self, BadRule> {
        let mut rest = text;
        let mut normalisers = Vec::new();
        'peel: loop {
            for (name, normaliser) in Normaliser::ALL {
                let inside = rest
                    .strip_prefix(name)
                    .and_then(|r| r.strip_prefix('('))
                    .and_then(|r| r.strip_suffix(')'));
                if let Some(inside) = inside {
                    normalisers.push(normaliser);
                    rest = inside;
                    continue 'peel;
                }
            }
            break;
        }
        normalisers.reverse();
        let source = PartSource::parse(rest).map_err(|why| BadRule::new(text, why))?;
        let part = Self {
            source,
            normalisers,
        };
        part.check().map(|()| part)
    }
}

impl PartSource {
    fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Pointer::parse(text)
                .map(Self::Pointer)
                .map_err(|e| e.to_string());
        }
        if let Some(name) = text.strip_prefix("header:") {
            return Ok(Self::Header(name.to_owned()));
        }
        if let Some(constant) = text.strip_prefix("const:") {
            return Ok(Self::Constant(constant.to_owned()));
        }
        if text == "message_key" {
            return Ok(Self::MessageKey);
        }
        let normalisers = Normaliser::ALL.map(|(name, _)| name).join("`, `");
        Err(format!(
            "a part is a JSON pointer such as `/id`, `header:NAME`, `message_key` or `const:TEXT`, with none or some of \
             `{normalisers}` around it, as in `lower(trim(/id))`"
        ))
    }

    fn find<'a>(&'a self, inputs: &Inputs<'a>, sole: Sole) -> Result<Piece<'a>, Lack> {
        match self {
            Self::Pointer(pointer) => {
                let value = inputs
                    .payload
                    .and_then(|payload| payload.at(pointer))
                    .ok_or(Lack::Missing)?;
                Piece::of_json(value, sole)
            }
            Self::Header(name) => header(name, inputs.headers).map(Piece::of_bytes),
            Self::MessageKey => inputs.message_key.map(Piece::of_bytes).ok_or(Lack::Missing),
            Self::Constant(text) => Ok(Piece::Text(Cow::Borrowed(text))),
        }
    }
}

/// The one value of a header. Copies of one value are one value; different values are no key, since every reader
/// would have to guess the same one.
fn header<'a>(name: &str, headers: &'a [(String, Bytes)]) -> Result<&'a [u8], Lack> {
    let mut values = headers
        .iter()
        .filter(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value);
    let first = values.next().ok_or(Lack::Missing)?;
    if values.all(|other| other == first) {
        Ok(first)
    } else {
        Err(Lack::Ambiguous)
    }
}

struct Found<'a> {
    source: Piece<'a>,
    normal: Option<Piece<'a>>,
}

impl<'a> Found<'a> {
    fn as_part(&self) -> Part<'_> {
        self.normal.as_ref().unwrap_or(&self.source).as_part()
    }

    fn source_text(&self) -> Cow<'a, str> {
        match &self.source {
            Piece::Text(text) => text.clone(),
            Piece::Uuid(uuid) => Cow::Owned(Key(*uuid).to_string()),
            Piece::Raw(bytes) => {
                let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
                Cow::Owned(std::iter::once("0x".to_owned()).chain(digits).collect())
            }
        }
    }
}

#[derive(Clone)]
enum Piece<'a> {
    Text(Cow<'a, str>),
    Uuid([u8; 16]),
    Raw(&'a [u8]),
}

impl<'a> Piece<'a> {
    fn of_bytes(bytes: &'a [u8]) -> Self {
        std::str::from_utf8(bytes).map_or(Self::Raw(bytes), |text| Self::Text(Cow::Borrowed(text)))
    }

    /// A boolean can tell operations apart only beside other parts.
    fn of_json(value: &'a Json<'a>, sole: Sole) -> Result<Self, Lack> {
        let text = match value {
            Json::Text(text) => text,
            Json::Number(source) => *source,
            Json::Bool(true) if sole == Sole::No => "true",
            Json::Bool(false) if sole == Sole::No => "false",
            Json::Null => return Err(Lack::Missing),
            Json::Bool(_) | Json::Array(_) | Json::Object(_) => {
                return Err(Lack::IllTyped {
                    found: value.kind(),
                    wanted: "text or a number",
                });
            }
        };
        Ok(Self::Text(Cow::Borrowed(text)))
    }

    fn as_part(&self) -> Part<'_> {
        match self {
            Self::Text(text) => Part::Text(text),
            Self::Uuid(uuid) => Part::Uuid(*uuid),
            Self::Raw(bytes) => Part::Raw(bytes),
        }
    }
}

impl Normaliser {
    fn apply(self, piece: Piece<'_>) -> Result<Piece<'_>, Lack> {
        let text = match piece {
            Piece::Text(text) => text,
            Piece::Uuid(_) => return Ok(piece),
            Piece::Raw(bytes) => return self.apply_to_bytes(bytes),
        };
        let not = |wanted| Lack::IllTyped {
            found: "text",
            wanted,
        };
        Ok(match self {
            Self::Uuid => Piece::Uuid(uuid_of(&text).ok_or_else(|| not("a UUID"))?),
            Self::Ulid => Piece::Uuid(ulid_of(&text).ok_or_else(|| not("a ULID"))?),
            Self::Int => Piece::Text(int_of(&text).ok_or_else(|| not("an integer"))?.into()),
            Self::Trim => Piece::Text(text.trim_matches([' ', '\t', '\r', '\n']).to_owned().into()),
            Self::Lower => Piece::Text(text.to_ascii_lowercase().into()),
            Self::Nfc if is_nfc(&text) => Piece::Text(text),
            Self::Nfc => Piece::Text(text.nfc().collect::<String>().into()),
        })
    }

    fn apply_to_bytes(self, bytes: &[u8]) -> Result<Piece<'_>, Lack> {
        match (self, bytes.try_into()) {
            (Self::Uuid | Self::Ulid, Ok(uuid)) => Ok(Piece::Uuid(uuid)),
            _ => Err(Lack::IllTyped {
                found: "bytes that are not UTF-8",
                wanted: "text",
            }),
        }
    }
}

/// An integer without leading zeros; zero has no sign.
fn int_of(text: &str) -> Option<String> {
    let (sign, digits) = text
        .strip_prefix('-')
        .map_or(("", text), |digits| ("-", digits));
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match digits.trim_start_matches('0') {
        "" => Some("0".to_owned()),
        rest => Some(format!("{sign}{rest}")),
    }
}

/// A ULID: 26 letters and digits of Crockford's alphabet in either case, the first at most `7`.
fn ulid_of(text: &str) -> Option<[u8; 16]> {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    if text.len() != 26 || text.as_bytes()[0] > b'7' {
        return None;
    }
    let value = text.bytes().try_fold(0_u128, |value, byte| {
        let digit = ALPHABET
            .iter()
            .position(|&known| known == byte.to_ascii_uppercase())?;
        Some(value << 5 | u128::try_from(digit).ok()?)
    })?;
    Some(value.to_be_bytes())
}

/// The operation's own time: a text of RFC 3339 with an offset, floored to ms, or an integer of Unix ms.
fn own_time(pointer: &Pointer, inputs: &Inputs<'_>) -> Result<u64, NoKey> {
    let lack = |why| NoKey {
        part: format!("`{pointer}` (key_time)"),
        why,
    };
    let value = inputs
        .payload
        .and_then(|payload| payload.at(pointer))
        .filter(|value| !value.is_null());
    let value = value.ok_or_else(|| lack(Lack::Missing))?;
    let wanted = "a time (RFC 3339 with an offset, or an integer of Unix ms)";
    let ill_typed = || {
        lack(Lack::IllTyped {
            found: value.kind(),
            wanted,
        })
    };
    let unix_ms: i128 = match value {
        Json::Text(text) => text
            .parse::<jiff::Timestamp>()
            .map_err(|_| ill_typed())?
            .as_nanosecond()
            .div_euclid(1_000_000),
        Json::Number(source) => source.parse().map_err(|_| ill_typed())?,
        Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => return Err(ill_typed()),
    };
    let unix_ms = u64::try_from(unix_ms).unwrap_or(0);
    let latest = inputs.now_ms.saturating_add(TIME_AHEAD_MS_MAX);
    if (super::TIME_MS_MIN..=latest).contains(&unix_ms) {
        Ok(unix_ms)
    } else {
        Err(lack(Lack::TimeOutOfRange { unix_ms }))
    }
}
