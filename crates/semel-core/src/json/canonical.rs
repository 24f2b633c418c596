//! The canonical form: one spelling for payloads that say the same.
//!
//! It sorts names and unifies white space and escapes. It changes no value: `1`, `1.0` and `1e0` stay different.

use super::Json;

/// The canonical form of a value: names sorted by their UTF-8 bytes, no white space, one escape form, numbers as
/// their source text. Two payloads that differ only in the order of names, white space or escapes have one form.
///
/// ```
/// use semel_core::{Json, canonical};
///
/// let json = Json::parse(br#"{ "b": [1.0, "\u0041"], "a": null }"#)?;
/// assert_eq!(canonical(&json), br#"{"a":null,"b":[1.0,"A"]}"#);
/// # Ok::<(), semel_core::Malformed>(())
/// ```
pub fn canonical(json: &Json<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    canonical_to(json, &mut |bytes| out.extend_from_slice(bytes));
    out
}

/// Writes the [`canonical`] form piece by piece, for hashers and writers, without holding it whole.
pub fn canonical_to(json: &Json<'_>, put: &mut impl FnMut(&[u8])) {
    match json {
        Json::Null => put(b"null"),
        Json::Bool(true) => put(b"true"),
        Json::Bool(false) => put(b"false"),
        Json::Number(source) => put(source.as_bytes()),
        Json::Text(text) => text_to(text, put),
        Json::Array(items) => {
            let mut before: &[u8] = b"[";
            for item in items {
                put(before);
                canonical_to(item, put);
                before = b",";
            }
            put(if items.is_empty() { b"[]" } else { b"]" });
        }
        Json::Object(object) => {
            let mut before: &[u8] = b"{";
            object.each_by_name(|name, value| {
                put(before);
                text_to(name, put);
                put(b":");
                canonical_to(value, put);
                before = b",";
            });
            put(if object.is_empty() { b"{}" } else { b"}" });
        }
    }
}

fn text_to(text: &str, put: &mut impl FnMut(&[u8])) {
    put(b"\"");
    escaped_to(text, put);
    put(b"\"");
}

/// Text in the one escape form, without its quotation marks: `\"`, `\\`, `\b`, `\t`, `\n`, `\f`, `\r`, else `\u00xx` (lower
/// case) below U+0020; every other character as itself (the form of RFC 8785).
pub(crate) fn escaped_to(text: &str, put: &mut impl FnMut(&[u8])) {
    // Almost no text needs an escape, and this fold (no early exit) is compiled to vector code.
    if text
        .bytes()
        .fold(false, |found, byte| found | needs_escape(byte))
    {
        each_escaped(text.as_bytes(), put);
    } else {
        put(text.as_bytes());
    }
}

fn needs_escape(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

#[cold]
fn each_escaped(bytes: &[u8], put: &mut impl FnMut(&[u8])) {
    for piece in bytes.split_inclusive(|&byte| needs_escape(byte)) {
        let (last, before) = piece
            .split_last()
            .expect("split_inclusive gives no empty piece");
        if needs_escape(*last) {
            put(before);
            put(&escape(*last)[..if short_escape(*last).is_some() { 2 } else { 6 }]);
        } else {
            put(piece);
        }
    }
}

fn short_escape(byte: u8) -> Option<u8> {
    match byte {
        b'"' | b'\\' => Some(byte),
        0x08 => Some(b'b'),
        b'\t' => Some(b't'),
        b'\n' => Some(b'n'),
        0x0C => Some(b'f'),
        b'\r' => Some(b'r'),
        _ => None,
    }
}

fn escape(byte: u8) -> [u8; 6] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match short_escape(byte) {
        Some(letter) => [b'\\', letter, 0, 0, 0, 0],
        None => [
            b'\\',
            b'u',
            b'0',
            b'0',
            HEX[usize::from(byte >> 4)],
            HEX[usize::from(byte & 15)],
        ],
    }
}
