//! Writes canonical content once, into the hash and into the field sums at the same time.

use sha2::{Digest, Sha256};

use super::{FIELD_SUMS_MAX, FieldSums, Fingerprint};
use crate::json::{Json, text_to};
use crate::key::leading_16;

/// Content up to this size is hashed by one call and never leaves the stack; most operations have 100 to 300 bytes.
const BUFFER_BYTES: usize = 512;

/// FNV-1a of 32 bits.
#[derive(Clone, Copy)]
struct Fnv(u32);

impl Fnv {
    const START: Self = Self(0x811C_9DC5);

    #[inline]
    fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |sum, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)))
    }
}

/// The two halves of a sum, folded onto each other.
fn fold(sum: u32) -> u16 {
    let [a, b, c, d] = sum.to_be_bytes();
    u16::from_be_bytes([a ^ c, b ^ d])
}

/// A named sum of the content in hand.
struct Named {
    path: String,
    sum: u32,
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
            self.tops.push(Named { path: segment.to_owned(), sum: 0 });
        } else {
            self.path.push('/');
        }
        self.path.push_str(segment);
    }

    fn add(&mut self, top: usize, sum: u32) {
        self.leaves.push(Named { path: self.path.clone(), sum });
        if self.tops.is_empty() {
            self.tops.push(Named { path: String::new(), sum: 0 });
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
    path: Fnv,
    depth: usize,
    leaves: [u16; FIELD_SUMS_MAX],
    leaf_count: usize,
    tops: [u32; FIELD_SUMS_MAX],
    top_count: usize,
    names: Option<Box<Names>>,
}

/// Where the path was before a name or position was added.
struct Outer {
    path: Fnv,
    text_length: usize,
}

impl Scribe {
    pub(super) fn new() -> Self {
        Self {
            buffer: [0; BUFFER_BYTES],
            filled: 0,
            hash: None,
            path: Fnv::START,
            depth: 0,
            leaves: [0; FIELD_SUMS_MAX],
            leaf_count: 0,
            tops: [0; FIELD_SUMS_MAX],
            top_count: 0,
            names: None,
        }
    }

    pub(super) fn naming() -> Self {
        Self { names: Some(Box::default()), ..Self::new() }
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
            FieldSums::from_sums(self.tops[..tops].iter().map(|sum| fold(*sum)))
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
        self.hash.get_or_insert_default().update(&self.buffer[..self.filled]);
        self.filled = 0;
    }

    /// A value without parts, in its canonical form.
    pub(super) fn leaf(&mut self, canonical: &[u8]) {
        self.put(canonical);
        self.sum(self.path.with(b"\0").with(canonical));
    }

    pub(super) fn text_leaf(&mut self, text: &str) {
        let mut sum = self.path.with(b"\0");
        text_to(text, &mut |bytes| {
            self.put(bytes);
            sum = sum.with(bytes);
        });
        self.sum(sum);
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

    fn sum(&mut self, sum: Fnv) {
        if let Some(place) = self.leaves.get_mut(self.leaf_count) {
            *place = fold(sum.0);
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
        let outer = Outer { path: self.path, text_length: self.names.as_ref().map_or(0, |names| names.path.len()) };
        if self.depth == 0 {
            self.top_count += 1;
        } else {
            self.path = self.path.with(b"/");
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
    pub(super) fn object<'n, V>(&mut self, fields: impl Iterator<Item = (&'n str, V)>, write: impl Fn(&mut Self, V)) {
        let mut before: &[u8] = b"{";
        for (name, value) in fields {
            self.member(before, name, name, |scribe| write(scribe, value));
            before = b",";
        }
        self.close(before, b"{}", b"}");
    }

    /// One field of an object. `segment` is what the path says, mostly the name.
    fn member(&mut self, before: &[u8], name: &str, segment: &str, write: impl FnOnce(&mut Self)) {
        self.put(before);
        text_to(name, &mut |bytes| self.put(bytes));
        self.put(b":");
        let outer = self.enter(segment);
        write(self);
        self.leave(&outer);
    }

    pub(super) fn array<V>(&mut self, items: impl Iterator<Item = V>, write: impl Fn(&mut Self, V)) {
        let mut before: &[u8] = b"[";
        for (position, item) in items.enumerate() {
            self.put(before);
            let outer = self.enter(&position.to_string());
            write(self, item);
            self.leave(&outer);
            before = b",";
        }
        self.close(before, b"[]", b"]");
    }

    /// Ends an array or object; one without parts is a leaf.
    fn close(&mut self, before: &[u8], empty: &[u8], end: &[u8]) {
        if before == b"," { self.put(end) } else { self.leaf(empty) }
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
                let mut before: &[u8] = b"[";
                for (position, item) in items.iter().enumerate() {
                    let position = position.to_string();
                    let Some(below) = below(unwanted, &position) else { continue };
                    self.put(before);
                    let outer = self.enter(&position);
                    self.json_without(item, &below);
                    self.leave(&outer);
                    before = b",";
                }
                self.close(before, b"[]", b"]");
            }
            Json::Object(object) => {
                let mut before: &[u8] = b"{";
                object.each_by_name(|name, value| {
                    let Some(below) = below(unwanted, name) else { return };
                    self.member(before, name, name, |scribe| scribe.json_without(value, &below));
                    before = b",";
                });
                self.close(before, b"{}", b"}");
            }
        }
    }

    /// An object of values by the pointers that lead to them; the path says `legs/0/amount` for `/legs/0/amount`.
    pub(super) fn listed<'n>(&mut self, found: impl Iterator<Item = (&'n str, &'n Json<'n>)>) {
        let mut before: &[u8] = b"{";
        for (pointer, value) in found {
            let segment = pointer.strip_prefix('/').unwrap_or(pointer);
            self.member(before, pointer, segment, |scribe| scribe.json(value));
            before = b",";
        }
        self.close(before, b"{}", b"}");
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
            match left.iter().position(|&sum| sum == fold(field.sum)) {
                Some(at) => {
                    left.remove(at);
                    known += 1;
                }
                None if unknown.is_none() => unknown = Some(field.path.clone()),
                None => {}
            }
        }
        // Everything is known, so what differs is not among the fields in hand: the payload lacks one.
        Self { fit: (known, fields.len() == stored.len()), unknown }
    }
}
