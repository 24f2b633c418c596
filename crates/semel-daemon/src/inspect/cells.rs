//! Reads the columns of a row, whichever dialect it came from: a key is a `uuid` there and 16 bytes here, a time an
//! instant there and an integer of microseconds here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use semel_core::Key;
use semel_core::rows::Value;
use serde::Serialize;
use serde_json::value::RawValue;

/// The columns of a row, read one after the other.
pub(crate) struct Cells<'r> {
    values: std::slice::Iter<'r, Value>,
}

impl<'r> Cells<'r> {
    pub(crate) fn new(row: &'r [Value]) -> Self {
        Self { values: row.iter() }
    }

    fn next(&mut self) -> &'r Value {
        self.values.next().unwrap_or(&Value::Null)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        match self.next() {
            Value::Text(text) => Some(text.to_string()),
            Value::Null
            | Value::Int(_)
            | Value::Amount(_)
            | Value::Bytes(_)
            | Value::Key(_)
            | Value::Time(_) => None,
        }
    }

    pub(crate) fn int(&mut self) -> Option<i64> {
        match self.next() {
            Value::Int(number) => Some(*number),
            Value::Null
            | Value::Text(_)
            | Value::Amount(_)
            | Value::Bytes(_)
            | Value::Key(_)
            | Value::Time(_) => None,
        }
    }

    pub(crate) fn key(&mut self) -> Option<Key> {
        match self.next() {
            Value::Key(key) => Some(*key),
            Value::Bytes(bytes) => Some(Key::from_bytes(bytes.as_ref().try_into().ok()?)),
            Value::Null | Value::Int(_) | Value::Text(_) | Value::Amount(_) | Value::Time(_) => {
                None
            }
        }
    }

    pub(crate) fn bytes(&mut self) -> Option<&'r [u8]> {
        match self.next() {
            Value::Bytes(bytes) => Some(bytes),
            Value::Null
            | Value::Int(_)
            | Value::Text(_)
            | Value::Amount(_)
            | Value::Key(_)
            | Value::Time(_) => None,
        }
    }

    pub(crate) fn time(&mut self) -> Option<Timestamp> {
        match self.next() {
            Value::Time(us) | Value::Int(us) => Timestamp::from_microsecond(*us).ok(),
            Value::Null | Value::Text(_) | Value::Amount(_) | Value::Bytes(_) | Value::Key(_) => {
                None
            }
        }
    }
}

/// How bytes are written as JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    /// They are text.
    Utf8,
    /// They are not.
    Base64,
}

/// Bytes as JSON text.
pub(crate) fn encoded(bytes: &[u8]) -> (String, Encoding) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), Encoding::Utf8),
        Err(_) => (BASE64.encode(bytes), Encoding::Base64),
    }
}

/// A stored reply: JSON as it is, anything else as text.
pub(crate) fn reply(bytes: &[u8]) -> Option<Box<RawValue>> {
    let raw = std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| RawValue::from_string(text.to_owned()).ok());
    raw.or_else(|| serde_json::value::to_raw_value(&encoded(bytes).0).ok())
}

/// A header with its value.
#[derive(Debug, Serialize)]
pub(crate) struct Header {
    name: String,
    value: String,
    encoding: Encoding,
}

/// Stored headers.
pub(crate) fn headers(stored: &[u8]) -> Vec<Header> {
    let headers = semel_core::ledger::decode_headers(stored);
    let pairs = headers.iter().flat_map(|headers| headers.iter());
    pairs
        .map(|(name, value)| {
            let (value, encoding) = encoded(value);
            Header {
                name: name.clone(),
                value,
                encoding,
            }
        })
        .collect()
}

impl Header {
    pub(crate) fn words(&self) -> String {
        format!("{}: {}", self.name, self.value)
    }
}
