//! Content a handler has normalised itself, such as amounts in minor units and references as keys.
//!
//! It is bound as if it were a JSON payload, so that one published format covers both.

use super::scribe::Scribe;
use super::{FieldSums, Fingerprint};
use crate::json::Json;
use crate::key::Key;

/// Normalised content: named values, kept sorted by name.
///
/// ```
/// use semel_core::fingerprint::{Canon, Content};
/// use semel_core::{Json, Policy};
///
/// let content = Content::new().field("amount", Canon::Integer(500)).field("asset", Canon::Text("EUR"));
/// let same = br#"{"asset":"EUR","amount":500}"#;
/// assert_eq!(content.finish(), Policy::All.bind(same, Json::parse(same).ok().as_ref()));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Content<'a> {
    fields: Vec<(&'a str, Canon<'a>)>,
}

/// A normalised value.
#[derive(Debug, Clone)]
pub enum Canon<'a> {
    /// As `null`.
    Null,
    /// As `true` or `false`.
    Bool(bool),
    /// As JSON text.
    Text(&'a str),
    /// A number as its source text.
    Number(&'a str),
    /// An integer, as a JSON number.
    Integer(i128),
    /// As JSON text: the lower-case hyphenated UUID.
    Key(Key),
    /// As JSON text: lower-case hexadecimal digits.
    Bytes(&'a [u8]),
    /// A value that needs no normalising.
    Json(&'a Json<'a>),
    /// As an array of objects.
    List(Vec<Content<'a>>),
}

impl<'a> Content<'a> {
    /// No fields yet.
    pub fn new() -> Self {
        // The wallet's widest operation has nine fields.
        Self {
            fields: Vec::with_capacity(10),
        }
    }

    /// Adds a field. The order of the calls does not matter; calls in the order of names are the fastest.
    ///
    /// # Panics
    ///
    /// If the name is there already: that is a bug of the caller.
    #[must_use]
    pub fn field(mut self, name: &'a str, value: Canon<'a>) -> Self {
        let at = match self.fields.last() {
            Some((last, _)) if *last >= name => {
                let place = self
                    .fields
                    .binary_search_by(|(known, _)| (*known).cmp(name));
                place.expect_err("a field of normalised content is given once")
            }
            _ => self.fields.len(),
        };
        self.fields.insert(at, (name, value));
        self
    }

    /// Adds a field where there is a value.
    ///
    /// # Panics
    ///
    /// As [`field`](Content::field).
    #[must_use]
    pub fn field_if(self, name: &'a str, value: Option<Canon<'a>>) -> Self {
        match value {
            Some(value) => self.field(name, value),
            None => self,
        }
    }

    /// The fingerprint and the field sums of the content.
    pub fn finish(&self) -> (Fingerprint, FieldSums) {
        let mut scribe = Scribe::new();
        self.write(&mut scribe);
        scribe.finish()
    }

    /// The field, nested as `legs/0/amount`, by which this content differs from the content whose sums were
    /// stored; `None` where none can be named.
    pub fn differing(&self, stored: &FieldSums) -> Option<String> {
        let mut scribe = Scribe::naming();
        self.write(&mut scribe);
        scribe.differing(stored)
    }

    fn write(&self, scribe: &mut Scribe) {
        scribe.object(
            self.fields.iter().map(|(name, value)| (*name, value)),
            |scribe, value| value.write(scribe),
        );
    }
}

impl Canon<'_> {
    fn write(&self, scribe: &mut Scribe) {
        match self {
            Self::Null => scribe.leaf(b"null"),
            Self::Bool(true) => scribe.leaf(b"true"),
            Self::Bool(false) => scribe.leaf(b"false"),
            Self::Text(text) => scribe.text_leaf(text),
            Self::Number(source) => scribe.leaf(source.as_bytes()),
            Self::Integer(integer) => scribe.integer_leaf(*integer),
            Self::Key(key) => scribe.text_leaf(key.encode(&mut [0; 36])),
            Self::Bytes(bytes) => {
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                scribe.text_leaf(&digits);
            }
            Self::Json(json) => scribe.json(json),
            Self::List(items) => scribe.array(items.iter(), |scribe, item| item.write(scribe)),
        }
    }
}
