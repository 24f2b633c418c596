//! Strict JSON: what a payload says, without guessing.
//!
//! Numbers keep their source text (no float ever, T87), a name given twice is malformed (T88), text is UTF-8
//! without lone surrogates, and nesting is limited. Everything borrows from the payload where it can. This
//! room never repairs a payload and never changes a value.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

mod canonical;
mod pointer;
#[cfg(test)]
mod tests;

pub(crate) use canonical::escaped_to;
pub use canonical::{canonical, canonical_to};
pub use pointer::{BadPointer, Pointer};

/// How deep arrays and objects may be nested.
///
/// Payloads of real systems stay below ten levels. The limit keeps the stack of every walk over a value small
/// (a few hundred bytes a level), so that a payload of 100 000 `[` is a dead letter and not a crash.
/// It also bounds the time: what is inside a nested value is scanned once a level (measured: 1 MB of numbers takes
/// 24 ms flat and 234 ms under 63 levels).
pub const DEPTH_MAX: usize = 64;

/// Up to here names are compared pair by pair (8 names: 28 comparisons, mostly of lengths) and sorted on the stack;
/// beyond it work and memory must grow no faster than the payload.
const FIELDS_FEW_MAX: usize = 16;

/// Why a payload is not one strict JSON value; a message that has to be read as JSON ends `dead(malformed)`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Malformed {
    /// What is wrong, and at which byte or column.
    pub detail: String,
    /// The field it is about, nested as `legs/0/amount`, where one can be named.
    pub field: Option<String>,
}

impl Malformed {
    fn new(detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            field: None,
        }
    }

    /// Says that the fault lies inside `segment` of the value around it.
    fn within(mut self, segment: &str) -> Self {
        self.field = Some(match self.field {
            Some(inner) => format!("{segment}/{inner}"),
            None => segment.to_owned(),
        });
        self
    }
}

/// One JSON value, borrowed from the payload.
///
/// ```
/// use semel_core::Json;
///
/// let payload = br#"{"id": "a-1", "amount": 327267367867168100000}"#;
/// let json = Json::parse(payload)?;
/// assert_eq!(json.get("amount"), Some(&Json::Number("327267367867168100000")));
/// assert_eq!(json.get("id").and_then(Json::text), Some("a-1"));
/// # Ok::<(), semel_core::Malformed>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number as its source text: `1`, `1.0` and `1e0` are three different values.
    Number(&'a str),
    /// Text, unescaped.
    Text(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object.
    Object(Object<'a>),
}

impl<'a> Json<'a> {
    /// Reads a whole payload as one JSON value.
    ///
    /// # Errors
    ///
    /// [`Malformed`], which tells the place: anything that RFC 8259 does not allow, a byte order mark, bytes after
    /// the value, bytes that are not UTF-8, a lone surrogate (`"\ud800"`), a name twice in one object, and
    /// nesting deeper than [`DEPTH_MAX`].
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        refuse_byte_order_mark(payload)?;
        let text = std::str::from_utf8(payload).map_err(|e| {
            Malformed::new(format!(
                "the payload is not UTF-8 at byte {}",
                e.valid_up_to()
            ))
        })?;
        Reader { whole: text }.document()
    }

    /// The value of a field; `None` where this is no object or has no such name.
    pub fn get(&self, name: &str) -> Option<&Json<'a>> {
        self.object()?.get(name)
    }

    /// The value a pointer leads to, if there is one.
    pub fn at(&self, pointer: &Pointer) -> Option<&Json<'a>> {
        pointer
            .segments()
            .iter()
            .try_fold(self, |value, segment| value.step(segment))
    }

    fn step(&self, segment: &str) -> Option<&Json<'a>> {
        match self {
            Json::Object(object) => object.get(segment),
            Json::Array(items) => items.get(pointer::array_index(segment)?),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) => None,
        }
    }

    /// The object, if it is one.
    pub fn object(&self) -> Option<&Object<'a>> {
        if let Json::Object(object) = self {
            Some(object)
        } else {
            None
        }
    }

    /// The items, if it is an array.
    pub fn array(&self) -> Option<&[Json<'a>]> {
        if let Json::Array(items) = self {
            Some(items)
        } else {
            None
        }
    }

    /// The text, if it is text.
    pub fn text(&self) -> Option<&str> {
        if let Json::Text(text) = self {
            Some(text)
        } else {
            None
        }
    }

    /// The source text, if it is a number.
    pub fn number(&self) -> Option<&'a str> {
        if let Json::Number(source) = self {
            Some(source)
        } else {
            None
        }
    }

    /// The text of text, or the source text of a number: `123` and `"123"` are one id.
    pub fn text_or_number(&self) -> Option<&str> {
        self.text().or_else(|| self.number())
    }

    /// Is it `null`? Most callers treat that like an absent field.
    pub fn is_null(&self) -> bool {
        matches!(self, Json::Null)
    }

    /// What it is, in a word, for error texts.
    pub fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
            Json::Number(_) => "a number",
            Json::Text(_) => "text",
            Json::Array(_) => "an array",
            Json::Object(_) => "an object",
        }
    }
}

/// The fields of an object in the order of the payload; no name occurs twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Object<'a> {
    fields: Vec<(Cow<'a, str>, Json<'a>)>,
}

impl<'a> Object<'a> {
    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&Json<'a>> {
        self.fields
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    /// The fields, in the order of the payload.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Json<'a>)> {
        self.fields.iter().map(|(name, value)| (&**name, value))
    }

    /// How many fields it has.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Has it no field at all?
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    fn sorted_by_name(&self) -> bool {
        self.fields.is_sorted_by(|(a, _), (b, _)| a < b)
    }

    /// Calls `visit` for each field in the order of the UTF-8 bytes of the names.
    pub(crate) fn each_by_name(&self, mut visit: impl FnMut(&str, &Json<'a>)) {
        if self.sorted_by_name() {
            self.fields
                .iter()
                .for_each(|(name, value)| visit(name, value));
            return;
        }
        if self.fields.len() <= FIELDS_FEW_MAX {
            let mut few: [usize; FIELDS_FEW_MAX] = std::array::from_fn(|i| i);
            self.sort_and_visit(&mut few[..self.fields.len()], visit);
        } else {
            let mut many: Vec<usize> = (0..self.fields.len()).collect();
            self.sort_and_visit(&mut many, visit);
        }
    }

    fn sort_and_visit(&self, order: &mut [usize], mut visit: impl FnMut(&str, &Json<'a>)) {
        order.sort_unstable_by(|&a, &b| self.fields[a].0.cmp(&self.fields[b].0));
        for &mut at in order {
            let (name, value) = &self.fields[at];
            visit(name, value);
        }
    }

    fn first_duplicate(&self) -> Option<&str> {
        if self.fields.len() <= FIELDS_FEW_MAX {
            let mut earlier = self.fields.iter().enumerate();
            return earlier
                .find(|(i, (name, _))| self.fields[..*i].iter().any(|(known, _)| known == name))
                .map(|(_, (name, _))| &**name);
        }
        let mut names: Vec<&str> = self.fields.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        names
            .windows(2)
            .find(|pair| pair[0] == pair[1])
            .map(|pair| pair[0])
    }
}

fn refuse_byte_order_mark(payload: &[u8]) -> Result<(), Malformed> {
    let mark = match payload {
        [0xEF, 0xBB, 0xBF, ..] => "EF BB BF",
        [0xFE, 0xFF, ..] => "FE FF",
        [0xFF, 0xFE, ..] => "FF FE",
        _ => return Ok(()),
    };
    Err(Malformed::new(format!(
        "the payload starts with a byte order mark (BOM, {mark}) at byte 0: JSON messages are UTF-8 without one"
    )))
}

/// Reads one payload. `serde_json` scans the text; here the kinds are told apart, numbers kept as text and names
/// compared.
#[derive(Clone, Copy)]
struct Reader<'a> {
    whole: &'a str,
}

impl<'a> Reader<'a> {
    fn document(self) -> Result<Json<'a>, Malformed> {
        let text = self.whole;
        match text.trim_ascii_start().as_bytes().first() {
            None => Err(Malformed::new("the payload is empty")),
            Some(b'{' | b'[') => self.container(text, 1),
            Some(_) => {
                let raw: &RawValue = serde_json::from_str(text).map_err(|e| not_json(&e, text))?;
                self.value(raw.get(), 0)
            }
        }
    }

    /// The byte of the payload at which `part`, a slice of it, starts.
    fn offset(self, part: &str) -> usize {
        part.as_ptr().addr() - self.whole.as_ptr().addr()
    }

    /// `raw` is one value that was scanned once: its first byte tells what it is.
    fn value(self, raw: &'a str, depth: usize) -> Result<Json<'a>, Malformed> {
        match raw.as_bytes()[0] {
            b'"' => self.text(raw).map(Json::Text),
            b'{' | b'[' => self.container(raw, depth + 1),
            b't' => Ok(Json::Bool(true)),
            b'f' => Ok(Json::Bool(false)),
            b'n' => Ok(Json::Null),
            _ => Ok(Json::Number(raw)),
        }
    }

    fn text(self, raw: &'a str) -> Result<Cow<'a, str>, Malformed> {
        let inside = &raw[1..raw.len() - 1];
        if !inside.as_bytes().contains(&b'\\') {
            return Ok(Cow::Borrowed(inside));
        }
        serde_json::from_str(raw).map(Cow::Owned).map_err(|e| {
            let byte = self.offset(raw) + e.column();
            Malformed::new(format!(
                "the text that ends at byte {byte} has an escape that stands for no character"
            ))
        })
    }

    fn container(self, raw: &'a str, depth: usize) -> Result<Json<'a>, Malformed> {
        if depth > DEPTH_MAX {
            let byte = self.offset(raw);
            return Err(Malformed::new(format!(
                "nested deeper than {DEPTH_MAX} levels at byte {byte}"
            )));
        }
        let mut fault = None;
        let items = Items {
            reader: self,
            raw,
            depth,
            fault: &mut fault,
        };
        let mut scan = serde_json::Deserializer::from_str(raw);
        let read = if raw.trim_ascii_start().starts_with('{') {
            scan.deserialize_map(items)
        } else {
            scan.deserialize_seq(items)
        };
        let read = read.and_then(|json| scan.end().map(|()| json));
        read.map_err(|e| fault.unwrap_or_else(|| not_json(&e, raw)))
    }
}

/// Where `text` stops being JSON. What the scanner says of it is for programmers, so only the place is taken.
fn not_json(error: &serde_json::Error, text: &str) -> Malformed {
    let ends = text.len();
    if error.is_eof() {
        return Malformed::new(format!(
            "the payload is cut off: it ends at byte {ends}, in the middle of its JSON"
        ));
    }
    let lines = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1));
    let byte = lines.map(str::len).sum::<usize>() + error.column();
    Malformed::new(format!(
        "the payload is not JSON from byte {} on",
        byte.clamp(1, ends)
    ))
}

struct Items<'a, 'f> {
    reader: Reader<'a>,
    raw: &'a str,
    depth: usize,
    fault: &'f mut Option<Malformed>,
}

impl<'a> Visitor<'a> for Items<'a, '_> {
    type Value = Json<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array or an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut access: A) -> Result<Json<'a>, A::Error> {
        let mut fields = Vec::with_capacity(8);
        while let Some(name) = access.next_key_seed(Name)? {
            let raw: &'a RawValue = access.next_value()?;
            match self.reader.value(raw.get(), self.depth) {
                Ok(value) => fields.push((name, value)),
                Err(fault) => return Err(give_up(self.fault, fault.within(&name))),
            }
        }
        let object = Object { fields };
        if let Some(name) = object.first_duplicate() {
            let byte = self.reader.offset(self.raw);
            let detail = format!("the name {name:?} occurs twice in the object at byte {byte}");
            return Err(give_up(self.fault, Malformed::new(detail).within(name)));
        }
        Ok(Json::Object(object))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut access: A) -> Result<Json<'a>, A::Error> {
        let mut items = Vec::new();
        while let Some(raw) = access.next_element::<&'a RawValue>()? {
            match self.reader.value(raw.get(), self.depth) {
                Ok(value) => items.push(value),
                Err(fault) => {
                    return Err(give_up(self.fault, fault.within(&items.len().to_string())));
                }
            }
        }
        Ok(Json::Array(items))
    }
}

/// Keeps our fault aside, since an error of `serde` can only carry text.
#[cold]
fn give_up<E: serde::de::Error>(slot: &mut Option<Malformed>, fault: Malformed) -> E {
    *slot = Some(fault);
    E::custom("malformed")
}

/// A name, borrowed where it has no escapes (`Cow<str>` of serde is always owned).
struct Name;

impl<'a> DeserializeSeed<'a> for Name {
    type Value = Cow<'a, str>;

    fn deserialize<D: serde::Deserializer<'a>>(self, names: D) -> Result<Self::Value, D::Error> {
        names.deserialize_str(self)
    }
}

impl<'a> Visitor<'a> for Name {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'a str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}
