//! JSON pointers: how a config names a value of the payload.

use std::fmt;

/// A JSON pointer (RFC 6901): `/legs/0/amount`; `~1` is a `/` and `~0` a `~` inside a name; the empty pointer is
/// the whole value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer {
    text: String,
    segments: Vec<String>,
}

impl Pointer {
    /// Reads a pointer from its text.
    ///
    /// # Errors
    ///
    /// [`BadPointer`] if it is not empty and does not start with `/`, or has a `~` without `0` or `1` behind it.
    pub fn parse(text: &str) -> Result<Self, BadPointer> {
        let bad = |why| BadPointer {
            text: text.to_owned(),
            why,
        };
        let segments = match text.strip_prefix('/') {
            Some(rest) => rest.split('/').map(unescape_segment).collect::<Option<_>>(),
            None if text.is_empty() => Some(Vec::new()),
            None => return Err(bad("must start with `/`")),
        };
        let segments = segments.ok_or_else(|| bad("has a `~` without `0` or `1` behind it"))?;
        Ok(Self {
            text: text.to_owned(),
            segments,
        })
    }

    /// The pointer as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its names and array positions, unescaped.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A text that is no JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no JSON pointer: it {why}")]
pub struct BadPointer {
    text: String,
    why: &'static str,
}

fn unescape_segment(segment: &str) -> Option<String> {
    let mut out = String::with_capacity(segment.len());
    let mut rest = segment.chars();
    while let Some(c) = rest.next() {
        out.push(match c {
            '~' => match rest.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(out)
}

/// RFC 6901, section 4: digits without a leading zero.
pub(super) fn array_index(segment: &str) -> Option<usize> {
    let digits = segment.bytes().all(|b| b.is_ascii_digit());
    let leading_zero = segment.len() > 1 && segment.starts_with('0');
    if digits && !leading_zero {
        segment.parse().ok()
    } else {
        None
    }
}
