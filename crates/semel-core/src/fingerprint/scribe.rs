//! Writes canonical content once, into the hash and into the field sums at the same time.

use sha2::{Digest, Sha256};

use super::{FIELD_SUMS_MAX, FieldSums, Fingerprint};
use crate::json::{Json, escaped_to};
use crate::key::leading_16;

/// Content up to this size is hashed by one call and never leaves the stack; most operations have 100 to 300 bytes.
const BUFFER_BYTES: usize = 512;

/// The sum of a path and a value: eight bytes a step, since a sum byte by byte cost as much as the whole of SHA-256.
/// It only has to tell the fields of one operation apart.
#[derive(Clone, Copy)]
struct Sum(u64);

impl Sum {
    const START: Self = Self(0xCBF2_9CE4_8422_2325);

    /// Adds bytes in groups of eight, the last one filled up with zeros.
    #[inline]
    fn with(self, bytes: &[u8]) -> Self {
        let mut groups = bytes.chunks_exact(8);
        let sum = groups.by_ref().fold(self, |sum, group| {
            sum.mixed(u64::from_le_bytes(
                group.try_into().expect("a group has eight bytes"),
            ))
        });
        match groups.remainder() {
            [] => sum,
            rest => sum.mixed(
                rest.iter()
                    .rev()
                    .fold(0, |group, &byte| group << 8 | u64::from(byte)),
            ),
        }
    }

    #[inline]
    fn mixed(self, group: u64) -> Self {
        let product = (self.0 ^ group).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self(product ^ (product >> 32))
    }
}

/// What is stored of a sum: its upper 16 bits, which every byte has reached.
fn upper_16(sum: u64) -> u16 {
    let [a, b, ..] = sum.to_be_bytes();
    u16::from_be_bytes([a, b])
}

/// What stands before the name of the first field of an object, and of the others.
const FIRST: &[u8] = b"{\"";
const NEXT: &[u8] = b",\"";

/// A named sum of the content in hand.
struct Named {
    path: String,
    sum: u64,
}

/// Names are collected only to explain a Clash.
#[derive(Default)]
struct Names {
    path: String,
    leaves: Vec<Named>,
    tops: Vec<Named>,
}

impl Names {
    fn enter(&mut self, segment: &str, depth: usize) {
        if depth == 0 {
            self.tops.push(Named {
                path: segment.to_owned(),
                sum: 0,
            });
        } else {
            self.path.push('/');
        }
        self.path.push_str(segment);
    }

    fn add(&mut self, top: usize, sum: u64) {
        self.leaves.push(Named {
            path: self.path.clone(),
            sum,
        });
        if self.tops.is_empty() {
            self.tops.push(Named {
                path: String::new(),
                sum: 0,
            });
        }
        let field = &mut self.tops[top];
        field.sum = field.sum.wrapping_add(sum);
    }
}

pub(super) struct Scribe {
    buffer: [u8; BUFFER_BYTES],
    filled: usize,
    hash: Option<Sha256>,
    /// Sum of the path to the value that is written next, and how many names and positions it has.
    path: Sum,
    depth: usize,
    leaves: [u16; FIELD_SUMS_MAX],
    leaf_count: usize,
    tops: [u64; FIELD_SUMS_MAX],
    top_count: usize,
    names: Option<Box<Names>>,
}

/// Where the path was before a name or position was added.
struct Outer {
    path: Sum,
    text_length: usize,
}

impl Scribe {
    pub(super) fn new() -> Self {
        Self {
            buffer: [0; BUFFER_BYTES],
            filled: 0,
            hash: None,
            path: Sum::START,
            depth: 0,
            leaves: [0; FIELD_SUMS_MAX],
            leaf_count: 0,
            tops: [0; FIELD_SUMS_MAX],
            top_count: 0,
            names: None,
        }
    }

    pub(super) fn naming() -> Self {
        Self {
            names: Some(Box::default()),
            ..Self::new()
        }
    }

    pub(super) fn finish(self) -> (Fingerprint, FieldSums) {
        let rest = &self.buffer[..self.filled];
        let digest: [u8; 32] = match self.hash {
            None => Sha256::digest(rest).into(),
            Some(hash) => hash.chain_update(rest).finalize().into(),
        };
        let sums = if self.leaf_count <= FIELD_SUMS_MAX {
            FieldSums::from_sums(self.leaves[..self.leaf_count].iter().copied())
        } else {
            let tops = self.top_count.min(FIELD_SUMS_MAX);
            FieldSums::from_sums(self.tops[..tops].iter().map(|sum| upper_16(*sum)))
        };
        (Fingerprint::from_bytes(leading_16(&digest)), sums)
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.filled + bytes.len() > BUFFER_BYTES {
            self.spill();
            if bytes.len() > BUFFER_BYTES {
                self.hash.get_or_insert_default().update(bytes);
                return;
            }
        }
        self.buffer[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    #[cold]
    fn spill(&mut self) {
        self.hash
            .get_or_insert_default()
            .update(&self.buffer[..self.filled]);
        self.filled = 0;
    }

    /// A value that is neither text nor made of parts, in its canonical form.
    pub(super) fn leaf(&mut self, canonical: &[u8]) {
        self.put(canonical);
        self.sum(self.path.with(b"v").with(canonical));
    }

    pub(super) fn text_leaf(&mut self, text: &str) {
        self.quoted(b"\"", text, b"\"");
        self.sum(self.path.with(b"s").with(text.as_bytes()));
    }

    /// Text in its one escape form; `start` and `end` hold the quotation marks.
    fn quoted(&mut self, start: &[u8], text: &str, end: &[u8]) {
        self.put(start);
        escaped_to(text, &mut |bytes| self.put(bytes));
        self.put(end);
    }

    pub(super) fn integer_leaf(&mut self, integer: i128) {
        // i128::MIN has a sign and 39 digits.
        let mut digits = [0; 40];
        let mut at = digits.len();
        let mut rest = integer.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + u8::try_from(rest % 10).expect("a digit fits in a byte");
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if integer < 0 {
            at -= 1;
            digits[at] = b'-';
        }
        self.leaf(&digits[at..]);
    }

    fn sum(&mut self, sum: Sum) {
        if let Some(place) = self.leaves.get_mut(self.leaf_count) {
            *place = upper_16(sum.0);
        }
        self.leaf_count += 1;
        if self.depth == 0 {
            self.top_count = 1;
        }
        let top = self.top_count - 1;
        if let Some(field) = self.tops.get_mut(top) {
            *field = field.wrapping_add(sum.0);
        }
        if let Some(names) = &mut self.names {
            names.add(top, sum.0);
        }
    }

    /// Goes from a value to one of its parts.
    fn enter(&mut self, segment: &str) -> Outer {
        let outer = Outer {
            path: self.path,
            text_length: self.names.as_ref().map_or(0, |names| names.path.len()),
        };
        if self.depth == 0 {
            self.top_count += 1;
        }
        self.path = self.path.with(segment.as_bytes());
        if let Some(names) = &mut self.names {
            names.enter(segment, self.depth);
        }
        self.depth += 1;
        outer
    }

    fn leave(&mut self, outer: &Outer) {
        self.depth -= 1;
        self.path = outer.path;
        if let Some(names) = &mut self.names {
            names.path.truncate(outer.text_length);
        }
    }

    /// An object, whose `fields` come sorted by name.
    pub(super) fn object<'n, V>(
        &mut self,
        fields: impl Iterator<Item = (&'n str, V)>,
        write: impl Fn(&mut Self, V),
    ) {
        let mut start = FIRST;
        for (name, value) in fields {
            self.member(start, name, name, |scribe| write(scribe, value));
            start = NEXT;
        }
        self.close_object(start);
    }

    /// One field of an object. `segment` is what the path says, mostly the name.
    fn member(&mut self, start: &[u8], name: &str, segment: &str, write: impl FnOnce(&mut Self)) {
        self.quoted(start, name, b"\":");
        let outer = self.enter(segment);
        write(self);
        self.leave(&outer);
    }

    pub(super) fn array<V>(
        &mut self,
        items: impl Iterator<Item = V>,
        write: impl Fn(&mut Self, V),
    ) {
        let mut start: &[u8] = b"[";
        for (position, item) in items.enumerate() {
            self.put(start);
            let outer = self.enter(&position.to_string());
            write(self, item);
            self.leave(&outer);
            start = b",";
        }
        self.close_array(start);
    }

    /// Ends an object; one without fields is a leaf.
    fn close_object(&mut self, start: &[u8]) {
        if start == NEXT {
            self.put(b"}")
        } else {
            self.leaf(b"{}")
        }
    }

    /// Ends an array; one without items is a leaf.
    fn close_array(&mut self, start: &[u8]) {
        if start == b"," {
            self.put(b"]")
        } else {
            self.leaf(b"[]")
        }
    }

    pub(super) fn json(&mut self, json: &Json<'_>) {
        self.json_without(json, &[]);
    }

    /// The value without what the `unwanted` pointers lead to, each given by its segments from here on.
    pub(super) fn json_without(&mut self, json: &Json<'_>, unwanted: &[&[String]]) {
        match json {
            Json::Null => self.leaf(b"null"),
            Json::Bool(true) => self.leaf(b"true"),
            Json::Bool(false) => self.leaf(b"false"),
            Json::Number(source) => self.leaf(source.as_bytes()),
            Json::Text(text) => self.text_leaf(text),
            Json::Array(items) => {
                let mut start: &[u8] = b"[";
                for (position, item) in items.iter().enumerate() {
                    let position = position.to_string();
                    let Some(below) = below(unwanted, &position) else {
                        continue;
                    };
                    self.put(start);
                    let outer = self.enter(&position);
                    self.json_without(item, &below);
                    self.leave(&outer);
                    start = b",";
                }
                self.close_array(start);
            }
            Json::Object(object) => {
                let mut start = FIRST;
                object.each_by_name(|name, value| {
                    let Some(below) = below(unwanted, name) else {
                        return;
                    };
                    self.member(start, name, name, |scribe| {
                        scribe.json_without(value, &below)
                    });
                    start = NEXT;
                });
                self.close_object(start);
            }
        }
    }

    /// An object of values by the pointers that lead to them; the path says `legs/0/amount` for `/legs/0/amount`.
    pub(super) fn listed<'n>(&mut self, found: impl Iterator<Item = (&'n str, &'n Json<'n>)>) {
        let mut start = FIRST;
        for (pointer, value) in found {
            let segment = pointer.strip_prefix('/').unwrap_or(pointer);
            self.member(start, pointer, segment, |scribe| scribe.json(value));
            start = NEXT;
        }
        self.close_object(start);
    }

    /// The field of the content written here that the stored sums do not know.
    pub(super) fn differing(self, stored: &FieldSums) -> Option<String> {
        let Names { leaves, tops, .. } = *self.names?;
        let stored: Vec<u16> = stored.iter().collect();
        let by_leaf = (leaves.len() <= FIELD_SUMS_MAX).then(|| Comparison::of(&leaves, &stored));
        let by_top = Comparison::of(&tops[..tops.len().min(FIELD_SUMS_MAX)], &stored);
        // The row does not say whether its sums are of leaves or of top-level fields: what fits better is right.
        let better = match by_leaf {
            Some(by_leaf) if by_leaf.fit >= by_top.fit => by_leaf,
            Some(_) | None => by_top,
        };
        better.unknown
    }
}

/// What is not excluded: the rest of the unwanted pointers that lead on from `segment`, or `None` where one ends
/// there.
fn below<'u>(unwanted: &[&'u [String]], segment: &str) -> Option<Vec<&'u [String]>> {
    let mut below = Vec::new();
    for pointer in unwanted {
        match pointer.split_first() {
            Some((first, [])) if first == segment => return None,
            Some((first, rest)) if first == segment => below.push(rest),
            _ => {}
        }
    }
    Some(below)
}

/// How sums of the content in hand compare with those of a row.
struct Comparison {
    /// How many sums the row knows, and whether it has as many: higher fits better.
    fit: (usize, bool),
    /// The first path whose sum the row does not know.
    unknown: Option<String>,
}

impl Comparison {
    fn of(fields: &[Named], stored: &[u16]) -> Self {
        let mut left = stored.to_vec();
        let mut unknown = None;
        let mut known = 0;
        for field in fields {
            match left.iter().position(|&sum| sum == upper_16(field.sum)) {
                Some(at) => {
                    left.remove(at);
                    known += 1;
                }
                None if unknown.is_none() => unknown = Some(field.path.clone()),
                None => {}
            }
        }
        // Everything is known, so what differs is not among the fields in hand: the payload lacks one.
        Self {
            fit: (known, fields.len() == stored.len()),
            unknown,
        }
    }
}
