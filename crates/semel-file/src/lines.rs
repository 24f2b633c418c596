//! Lines out of a reader, in chunks, without ever holding more of a line than its limit.

use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;
use semel_core::Json;
use semel_core::message::Cut;
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::CUT_BYTES;
use crate::mark::Mark;

/// How much is read at once. Lines share the memory of their chunk, so a line that waits long keeps
/// this much alive; a system call costs 5 µs for some 150 lines.
pub(crate) const CHUNK_BYTES: usize = 32 * 1024;

/// The byte order mark of UTF-8.
pub(crate) const BOM: &[u8] = b"\xEF\xBB\xBF";

/// One line that is not empty.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// From 1.
    pub(crate) number: u64,
    pub(crate) payload: Bytes,
    pub(crate) cut: Option<Cut>,
    pub(crate) mark: Mark,
    /// It may be half written, and nothing in it tells: the position stays before it.
    pub(crate) partial: bool,
}

/// Splits a reader into lines.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: R,
    /// Beginning of a line whose end was not read yet.
    carry: Vec<u8>,
    huge: Option<Huge>,
    /// Number and first byte of the line that begins in `carry` or `huge`.
    number: u64,
    start: u64,
    bytes_max: usize,
    ended: bool,
}

impl<R: Read> Lines<R> {
    /// Lines of `input`, which stands behind `mark`, or at its beginning.
    pub(crate) fn new(input: R, mark: Option<Mark>, bytes_max: usize) -> Self {
        let (number, start) = mark.map_or((1, 0), |mark| (mark.next, mark.end));
        Self {
            input,
            carry: Vec::new(),
            huge: None,
            number,
            start,
            bytes_max,
            ended: false,
        }
    }

    /// The lines of the next chunk, maybe none; `None` at the end. After an error the call may be
    /// repeated.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<Line>>> {
        if self.ended {
            return Ok(None);
        }
        let kept = self.carry.len();
        let mut buffer = std::mem::take(&mut self.carry);
        buffer.resize(kept + CHUNK_BYTES, 0);
        let read = read(&mut self.input, &mut buffer[kept..]);
        buffer.truncate(kept + *read.as_ref().unwrap_or(&0));
        match read {
            Err(error) => {
                self.carry = buffer;
                Err(error)
            }
            Ok(0) => {
                self.ended = true;
                Ok(Some(self.last(buffer)))
            }
            Ok(_) => Ok(Some(self.split(buffer))),
        }
    }

    fn split(&mut self, buffer: Vec<u8>) -> Vec<Line> {
        // An empty carry was searched already; a line that spans chunks is searched again, at most
        // `bytes_max / CHUNK_BYTES` times.
        let buffer = Bytes::from(buffer);
        let mut lines = Vec::new();
        let mut from = 0;
        for end in memchr::memchr_iter(b'\n', &buffer) {
            let raw = buffer.slice(from..=end);
            from = end + 1;
            lines.extend(self.line(&raw));
        }
        self.rest(&buffer[from..]);
        lines
    }

    /// A whole line with its end, or the end of a huge one.
    fn line(&mut self, raw: &Bytes) -> Option<Line> {
        let line = match self.huge.take() {
            Some(mut huge) => {
                huge.feed(raw);
                let end = self.start + huge.raw_size;
                Some(huge.finish(self.number, self.start, end))
            }
            None => self.whole(raw),
        };
        self.start = line
            .as_ref()
            .map_or(self.start + raw.len() as u64, |line| line.mark.end);
        self.number += 1;
        line
    }

    fn whole(&self, raw: &Bytes) -> Option<Line> {
        let mut content = without_end(raw);
        if self.start == 0 && content.starts_with(BOM) {
            content = &content[BOM.len()..];
        }
        if content.is_empty() {
            return None;
        }
        if content.len() > self.bytes_max {
            let mut huge = Huge::new(self.start == 0);
            huge.feed(raw);
            return Some(huge.finish(self.number, self.start, self.start + raw.len() as u64));
        }
        let mark = Mark {
            start: self.start,
            end: self.start + raw.len() as u64,
            hash: xxh3_64(raw),
            next: self.number + 1,
        };
        Some(Line {
            number: self.number,
            payload: raw.slice_ref(content),
            cut: None,
            mark,
            partial: false,
        })
    }

    /// Keeps the beginning of a line for the next chunk, unless the line is huge.
    fn rest(&mut self, raw: &[u8]) {
        if let Some(huge) = &mut self.huge {
            huge.feed(raw);
        } else if raw.len() > self.bytes_max + BOM.len() + 2 {
            let mut huge = Huge::new(self.start == 0);
            huge.feed(raw);
            self.huge = Some(huge);
        } else {
            self.carry = raw.to_vec();
        }
    }

    /// The last line, when it has no end. An object that is whole stays so, whatever comes; anything else may be half
    /// written.
    fn last(&mut self, buffer: Vec<u8>) -> Vec<Line> {
        let raw = Bytes::from(buffer);
        if raw.is_empty() && self.huge.is_none() {
            return Vec::new();
        }
        let line = self.line(&raw).map(|line| Line {
            partial: line.cut.is_some() || !is_object(&line.payload),
            ..line
        });
        line.into_iter().collect()
    }
}

fn is_object(text: &[u8]) -> bool {
    Json::parse(text).is_ok_and(|json| json.object().is_some())
}

pub(crate) fn read<R: Read>(input: &mut R, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn without_end(raw: &[u8]) -> &[u8] {
    let Some(line) = raw.strip_suffix(b"\n") else {
        return raw;
    };
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A line over the limit: hashed as it passes, only its beginning kept.
struct Huge {
    head: Vec<u8>,
    size: u64,
    raw_size: u64,
    sha: Sha256,
    xxh: Box<Xxh3>,
    /// The first line of a file may begin with a byte order mark.
    first: bool,
    /// A `\r` that is content unless the line ends behind it.
    held: bool,
}

impl fmt::Debug for Huge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Huge")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Huge {
    fn new(first: bool) -> Self {
        Self {
            head: Vec::new(),
            size: 0,
            raw_size: 0,
            sha: Sha256::new(),
            xxh: Box::default(),
            first,
            held: false,
        }
    }

    /// Takes the next piece of the line; the last one ends with `\n`, if the line has an end.
    fn feed(&mut self, raw: &[u8]) {
        self.xxh.update(raw);
        self.raw_size += raw.len() as u64;
        let mut content = raw;
        if std::mem::take(&mut self.first) {
            content = content.strip_prefix(BOM).unwrap_or(content);
        }
        let ended = content.ends_with(b"\n");
        content = content.strip_suffix(b"\n").unwrap_or(content);
        if self.held && !(ended && content.is_empty()) && !raw.is_empty() {
            self.held = false;
            self.put(b"\r");
        }
        if let Some(before) = content.strip_suffix(b"\r") {
            content = before;
            self.held = true;
        }
        if ended {
            self.held = false;
        }
        self.put(content);
    }

    fn put(&mut self, content: &[u8]) {
        self.size += content.len() as u64;
        self.sha.update(content);
        let room = CUT_BYTES - self.head.len();
        self.head
            .extend_from_slice(&content[..content.len().min(room)]);
    }

    fn finish(mut self, number: u64, start: u64, end: u64) -> Line {
        if self.held {
            self.put(b"\r");
        }
        let digest = self.sha.finalize();
        let mut hash = [0; 16];
        hash.copy_from_slice(&digest[..16]);
        let mark = Mark {
            start,
            end,
            hash: self.xxh.digest(),
            next: number + 1,
        };
        let cut = Some(Cut {
            size: self.size,
            hash,
        });
        Line {
            number,
            payload: self.head.into(),
            cut,
            mark,
            partial: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that hands out few bytes at a time.
    struct Drops<'a>(&'a [u8], usize);

    impl Read for Drops<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(self.1).min(buffer.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn all(input: &[u8], step: usize, bytes_max: usize) -> Vec<Line> {
        let mut lines = Lines::new(Drops(input, step), None, bytes_max);
        std::iter::from_fn(|| lines.chunk().unwrap())
            .flatten()
            .collect()
    }

    fn texts(lines: &[Line]) -> Vec<(u64, String)> {
        lines
            .iter()
            .map(|l| (l.number, String::from_utf8_lossy(&l.payload).into_owned()))
            .collect()
    }

    #[test]
    fn e104_e105_a_mark_crlf_and_a_missing_last_line_end_are_not_content() {
        for step in [1, 2, 3, 1000] {
            let lines = all(
                b"\xEF\xBB\xBF{\"a\":1}\r\n\r\n\n{\"b\":2}\n{\"c\":3.18}",
                step,
                100,
            );
            let expected = [
                (1, "{\"a\":1}".to_owned()),
                (4, "{\"b\":2}".to_owned()),
                (5, "{\"c\":3.18}".to_owned()),
            ];
            assert_eq!(texts(&lines), expected);
        }
    }

    #[test]
    fn a_mark_or_a_carriage_return_elsewhere_is_content() {
        let lines = all(b"a\rb\n\xEF\xBB\xBFc\r\r\nd\r", 3, 100);
        assert_eq!(lines[0].payload.as_ref(), b"a\rb");
        assert_eq!(lines[1].payload.as_ref(), b"\xEF\xBB\xBFc\r");
        assert_eq!(lines[2].payload.as_ref(), b"d\r");
    }

    #[test]
    fn bytes_that_are_not_text_pass_as_they_are() {
        let lines = all(b"\xff\xfe\x00{\nx\n", 2, 100);
        assert_eq!(lines[0].payload.as_ref(), b"\xff\xfe\x00{");
        assert_eq!(lines[1].number, 2);
    }

    #[test]
    fn e130_a_line_over_the_limit_is_cut_and_hashed_however_it_is_read() {
        let big = [b"x".repeat(300_000), b"\r".to_vec(), b"y".repeat(5)].concat();
        let file = [b"a\n".as_slice(), &big, b"\r\nb\n"].concat();
        let hash = Sha256::digest(&big);
        for step in [701, 32 * 1024, 300_003, 1_000_000] {
            for bytes_max in [10, 100_000, 300_005] {
                let lines = all(&file, step, bytes_max);
                assert_eq!(lines.len(), 3);
                let cut = lines[1].cut.unwrap();
                assert_eq!(cut.size, 300_006);
                assert_eq!(cut.hash, hash[..16]);
                assert_eq!(lines[1].payload.as_ref(), &big[..CUT_BYTES]);
                assert_eq!(
                    (lines[2].number, lines[2].payload.as_ref()),
                    (3, b"b".as_slice())
                );
                let mark = lines[1].mark;
                let raw =
                    &file[usize::try_from(mark.start).unwrap()..usize::try_from(mark.end).unwrap()];
                assert_eq!((mark.start, mark.hash), (2, xxh3_64(raw)));
            }
        }
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_whole() {
        for end in ["", "\n", "\r\n"] {
            let file = format!("\u{feff}{}{end}", "x".repeat(40_000));
            for step in [999, 32 * 1024] {
                let lines = all(file.as_bytes(), step, 40_000);
                assert_eq!(lines[0].payload.len(), 40_000, "{end:?} {step}");
                assert_eq!(lines[0].cut, None);
                assert!(all(file.as_bytes(), step, 39_999)[0].cut.is_some());
            }
        }
    }

    #[test]
    fn memory_stays_flat_under_a_line_without_end() {
        let mut lines = Lines::new(io::repeat(b'x').take(5_000_000), None, 100_000);
        while lines.chunk().unwrap().is_some() {
            let held =
                lines.carry.capacity() + lines.huge.as_ref().map_or(0, |huge| huge.head.capacity());
            assert!(held < 400_000, "{held} bytes held");
        }
    }
}
