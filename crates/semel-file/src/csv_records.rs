//! Records of a CSV file as JSON objects of text values, and null for an empty cell: a file of several kinds of
//! operations has columns that most of its records leave out. No more of a record than its limit is ever held.
//!
//! A record is whole when its line end was read: half a JSON object is no JSON object, but half a record may be a
//! record with a smaller amount. What stands at the end of the file without a line end is handed out as it stands there,
//! which nothing takes for a message, and the position stays before it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use bytes::Bytes;
use semel_core::Fault;
use semel_core::fingerprint::Fingerprint;
use semel_core::message::Cut;
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::CUT_BYTES;
use crate::lines::{BOM, CHUNK_BYTES, Line, read};
use crate::mark::Mark;

/// Where in a record a byte was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the start of a field: only there a quote opens quotes.
    Start,
    /// In a field, outside quotes.
    Plain,
    /// Inside quotes.
    Quoted,
    /// Behind a quote inside quotes: their end, or the first half of a quote as text.
    Quote,
    /// Behind a `\r` outside quotes: a line end, alone or with a `\n`.
    Return,
}

/// What the next byte is.
enum Step {
    /// Of the same record.
    Inside(Place),
    /// The last byte of the record.
    Last,
    /// The first byte behind the record.
    Behind,
}

impl Place {
    const fn step(self, byte: u8) -> Step {
        match (self, byte) {
            (Self::Quoted, b'"') => Step::Inside(Self::Quote),
            (Self::Quoted, _) | (Self::Start | Self::Quote, b'"') => Step::Inside(Self::Quoted),
            (_, b'\n') => Step::Last,
            (Self::Return, _) => Step::Behind,
            (_, b'\r') => Step::Inside(Self::Return),
            (_, b',') => Step::Inside(Self::Start),
            (Self::Start | Self::Plain | Self::Quote, _) => Step::Inside(Self::Plain),
        }
    }

    /// The place behind the first byte of a record.
    const fn behind(self, byte: u8) -> Self {
        match self.step(byte) {
            Step::Inside(next) => next,
            Step::Last | Step::Behind => Self::Start,
        }
    }
}

/// The fields of a record, one behind the other, and where each ends.
fn fields(raw: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let mut text = Vec::with_capacity(raw.len());
    let mut ends = Vec::new();
    let mut place = Place::Start;
    for &byte in raw {
        let Step::Inside(next) = place.step(byte) else {
            break;
        };
        match (place, next) {
            (_, Place::Return) => break,
            (_, Place::Start) => ends.push(text.len()),
            (Place::Start, Place::Quoted) | (Place::Quoted, Place::Quote) => {}
            _ => text.push(byte),
        }
        place = next;
    }
    ends.push(text.len());
    (text, ends)
}

/// The record without its line end.
fn content(raw: &[u8]) -> &[u8] {
    let line = raw.strip_suffix(b"\n").unwrap_or(raw);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A record over the limit: hashed as it stands in the file while it passes, only its beginning kept.
struct Huge {
    head: Vec<u8>,
    size: u64,
    sha: Sha256,
    xxh: Box<Xxh3>,
}

impl fmt::Debug for Huge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Huge")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Huge {
    fn new() -> Self {
        Self {
            head: Vec::new(),
            size: 0,
            sha: Sha256::new(),
            xxh: Box::default(),
        }
    }

    fn feed(&mut self, raw: &[u8]) {
        self.size += raw.len() as u64;
        self.sha.update(raw);
        self.xxh.update(raw);
        let room = CUT_BYTES - self.head.len();
        self.head.extend_from_slice(&raw[..raw.len().min(room)]);
    }
}

/// Reads records behind a header.
#[derive(Debug)]
pub(crate) struct Records<R> {
    input: R,
    names: Vec<String>,
    bytes_max: usize,
    /// Beginning of the record whose end was not read yet, unless it is huge.
    carry: Vec<u8>,
    huge: Option<Huge>,
    /// Where its next byte is.
    place: Place,
    /// Its first byte and line, and the lines that end inside it.
    start: u64,
    number: u64,
    inner: u64,
    ended: bool,
}

impl Records<File> {
    /// Reads the header, and goes behind `mark`.
    pub(crate) fn open(
        file: File,
        path: &Path,
        mark: Option<Mark>,
        bytes_max: usize,
    ) -> Result<Self, Fault> {
        let shown = path.display();
        let away = |e: io::Error| Fault::down(format!("cannot read `{shown}`: {e}"));
        let mut input = file;
        input.seek(SeekFrom::Start(0)).map_err(away)?;
        let header = Header::read(&mut input, bytes_max).map_err(away)?;
        let names = header.names(bytes_max).map_err(|why| {
            Fault::refused(format!("the header of `{shown}` cannot be read: {why}"))
        })?;
        let mut sorted = names.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Fault::refused(format!(
                "the header of `{shown}` names `{}` twice: rename a column",
                twice[0]
            )));
        }
        let (start, number) = mark.map_or((header.end, header.next), |mark| (mark.end, mark.next));
        input.seek(SeekFrom::Start(start)).map_err(away)?;
        Ok(Self {
            // Behind half a header there is the other half, and no record.
            ended: !header.whole,
            ..Self::new(input, names, (start, number), bytes_max)
        })
    }
}

impl<R: Read> Records<R> {
    /// Records of `input`, which stands at this byte and line.
    fn new(input: R, names: Vec<String>, (start, number): (u64, u64), bytes_max: usize) -> Self {
        Self {
            input,
            names,
            bytes_max,
            carry: Vec::new(),
            huge: None,
            place: Place::Start,
            start,
            number,
            inner: 0,
            ended: false,
        }
    }

    /// The records of the next chunk, maybe none; `None` at the end. After an error the call may be repeated.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<Line>>> {
        if self.ended {
            return Ok(None);
        }
        let mut buffer = vec![0; CHUNK_BYTES];
        let size = read(&mut self.input, &mut buffer)?;
        if size == 0 {
            self.ended = true;
            let partial = self.place != Place::Return;
            return Ok(Some(self.end(partial).into_iter().collect()));
        }
        Ok(Some(self.split(&buffer[..size])))
    }

    fn split(&mut self, buffer: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        let (mut from, mut at) = (0, 0);
        while let Some(&byte) = buffer.get(at) {
            let behind = match self.place.step(byte) {
                Step::Inside(next) => {
                    self.place = next;
                    self.inner += u64::from(byte == b'\n');
                    at += 1;
                    continue;
                }
                Step::Last => at + 1,
                Step::Behind => at,
            };
            self.take(&buffer[from..behind]);
            lines.extend(self.end(false));
            (from, at) = (behind, behind);
        }
        self.take(&buffer[from..]);
        lines
    }

    fn take(&mut self, raw: &[u8]) {
        if let Some(huge) = &mut self.huge {
            huge.feed(raw);
            return;
        }
        self.carry.extend_from_slice(raw);
        if self.carry.len() > self.bytes_max + 2 {
            self.overflow();
        }
    }

    fn overflow(&mut self) {
        let mut huge = Huge::new();
        huge.feed(&std::mem::take(&mut self.carry));
        self.huge = Some(huge);
    }

    /// Ends the record in hand; an empty line is none.
    fn end(&mut self, partial: bool) -> Option<Line> {
        if self.huge.is_none() && content(&self.carry).len() > self.bytes_max {
            self.overflow();
        }
        let is_some = self.huge.is_some() || !content(&self.carry).is_empty();
        let next = self.number + self.inner + 1;
        let line = match self.huge.take() {
            Some(huge) => self.huge_line(huge, next, partial),
            None => self.line(next, partial),
        };
        self.start = line.mark.end;
        self.number = next;
        self.inner = 0;
        self.place = Place::Start;
        self.carry.clear();
        is_some.then_some(line)
    }

    fn huge_line(&self, huge: Huge, next: u64, partial: bool) -> Line {
        let mut hash = [0; 16];
        hash.copy_from_slice(&huge.sha.finalize()[..16]);
        Line {
            number: self.number,
            payload: huge.head.into(),
            cut: Some(Cut {
                size: huge.size,
                hash,
            }),
            mark: Mark {
                start: self.start,
                end: self.start + huge.size,
                hash: huge.xxh.digest(),
                next,
            },
            partial,
        }
    }

    fn line(&self, next: u64, partial: bool) -> Line {
        let raw = &self.carry;
        let mark = Mark {
            start: self.start,
            end: self.start + raw.len() as u64,
            hash: xxh3_64(raw),
            next,
        };
        let object = if partial { None } else { self.object() };
        let payload = object.unwrap_or_else(|| raw.trim_ascii_end().to_vec());
        let (payload, cut) = self.within(payload);
        Line {
            number: self.number,
            payload,
            cut,
            mark,
            partial,
        }
    }

    /// The payload, or the beginning of one that is over the limit.
    fn within(&self, mut payload: Vec<u8>) -> (Bytes, Option<Cut>) {
        if payload.len() <= self.bytes_max {
            return (payload.into(), None);
        }
        let cut = Cut {
            size: payload.len() as u64,
            hash: Fingerprint::of_bytes(&payload).into_bytes(),
        };
        payload.truncate(CUT_BYTES);
        payload.shrink_to_fit();
        (payload.into(), Some(cut))
    }

    /// The record as JSON. `None` where it does not fit the header or is not UTF-8: such a record is
    /// handed out as it stands in the file, and ends as malformed there where content is judged.
    fn object(&self) -> Option<Vec<u8>> {
        let (text, ends) = fields(&self.carry);
        if ends.len() != self.names.len() || content(&self.carry).is_empty() {
            return None;
        }
        let mut json = Vec::with_capacity(text.len() * 2 + 16 * self.names.len());
        let mut from = 0;
        json.push(b'{');
        for (name, end) in self.names.iter().zip(ends) {
            if json.len() > 1 {
                json.push(b',');
            }
            serde_json::to_writer(&mut json, name).ok()?;
            json.push(b':');
            let cell = std::str::from_utf8(&text[from..end]).ok()?;
            serde_json::to_writer(&mut json, &(!cell.is_empty()).then_some(cell)).ok()?;
            from = end;
        }
        json.push(b'}');
        Some(json)
    }
}

/// The first record of a file.
struct Header {
    raw: Vec<u8>,
    /// Its line end was read.
    whole: bool,
    /// The first byte and line behind it.
    end: u64,
    next: u64,
}

impl Header {
    /// Reads up to its end, or a little more than `bytes_max`.
    fn read(input: &mut impl Read, bytes_max: usize) -> io::Result<Self> {
        let mut header = Self {
            raw: Vec::new(),
            whole: false,
            end: 0,
            next: 1,
        };
        let mut place = Place::Start;
        let mut buffer = [0; 8 * 1024];
        loop {
            let size = read(input, &mut buffer)?;
            for &byte in &buffer[..size] {
                let step = place.step(byte);
                if !matches!(step, Step::Behind) {
                    header.put(byte);
                }
                place = match step {
                    Step::Inside(next) => next,
                    // Empty lines above the header are none.
                    Step::Last if content(header.text()).is_empty() => {
                        header.raw.clear();
                        Place::Start
                    }
                    Step::Behind if content(header.text()).is_empty() => {
                        header.raw.clear();
                        header.next += 1;
                        header.put(byte);
                        Place::Start.behind(byte)
                    }
                    Step::Last | Step::Behind => {
                        header.whole = true;
                        header.next += u64::from(place == Place::Return && byte != b'\n');
                        return Ok(header);
                    }
                };
            }
            if size == 0 || header.raw.len() > bytes_max {
                header.whole = place == Place::Return;
                header.next += u64::from(header.whole);
                return Ok(header);
            }
        }
    }

    fn put(&mut self, byte: u8) {
        self.raw.push(byte);
        self.end += 1;
        self.next += u64::from(byte == b'\n');
    }

    fn text(&self) -> &[u8] {
        self.raw.strip_prefix(BOM).unwrap_or(&self.raw)
    }

    fn names(&self, bytes_max: usize) -> Result<Vec<String>, String> {
        if !self.whole && self.raw.len() > bytes_max {
            return Err(format!(
                "it has no end within {bytes_max} bytes; is a quote not closed, or is the file no CSV?"
            ));
        }
        if content(self.text()).is_empty() {
            return Ok(Vec::new());
        }
        let (text, ends) = fields(self.text());
        let mut from = 0;
        let names = ends.into_iter().map(|end| {
            let name = std::str::from_utf8(&text[from..end]);
            from = end;
            name.map(str::to_owned)
                .map_err(|_| "a name is not UTF-8".to_owned())
        });
        names.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// A reader of these pieces; an empty one is an error.
    struct Pieces(VecDeque<Vec<u8>>);

    impl Pieces {
        fn of(input: &[u8], step: usize) -> Self {
            Self(input.chunks(step).map(<[u8]>::to_vec).collect())
        }
    }

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.pop_front() {
                None => Ok(0),
                Some(piece) if piece.is_empty() => Err(io::Error::other("away")),
                Some(piece) => {
                    buffer[..piece.len()].copy_from_slice(&piece);
                    Ok(piece.len())
                }
            }
        }
    }

    fn records(input: Pieces, bytes_max: usize) -> Records<Pieces> {
        let names = vec!["id".to_owned(), "amount".to_owned()];
        Records::new(input, names, (0, 1), bytes_max)
    }

    /// All lines, over all errors.
    fn all(mut records: Records<Pieces>) -> Vec<Line> {
        let mut lines = Vec::new();
        loop {
            match records.chunk() {
                Ok(Some(more)) => lines.extend(more),
                Ok(None) => return lines,
                Err(_) => {}
            }
        }
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        let text = |line: &Line| String::from_utf8_lossy(&line.payload).into_owned();
        lines.iter().map(text).collect()
    }

    #[test]
    fn an_error_of_the_disk_loses_no_record_and_the_call_may_be_repeated() {
        let pieces = ["a,1\nb,", "", "20", "", "", "0\nc,3\n", ""];
        let pieces = pieces.map(|piece| piece.as_bytes().to_vec());
        let lines = all(records(Pieces(pieces.into()), 100));
        assert_eq!(
            texts(&lines),
            [
                r#"{"id":"a","amount":"1"}"#,
                r#"{"id":"b","amount":"200"}"#,
                r#"{"id":"c","amount":"3"}"#
            ]
        );
        let numbers: Vec<u64> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [1, 2, 3]);
    }

    #[test]
    fn a_record_that_is_written_in_pieces_is_never_one_with_a_smaller_amount() {
        let input = "a,100\r\n\"b\n\"\"x\",200\r\n\r\nc,3";
        for step in 1..input.len() {
            let lines = all(records(Pieces::of(input.as_bytes(), step), 100));
            assert_eq!(
                texts(&lines),
                [
                    r#"{"id":"a","amount":"100"}"#,
                    r#"{"id":"b\n\"x","amount":"200"}"#,
                    "c,3"
                ],
                "{step}"
            );
            let places: Vec<(u64, u64, bool)> = lines
                .iter()
                .map(|line| (line.number, line.mark.next, line.partial))
                .collect();
            assert_eq!(
                places,
                [(1, 2, false), (2, 4, false), (5, 6, true)],
                "{step}"
            );
        }
    }

    #[test]
    fn an_unclosed_quote_holds_no_more_than_the_limit() {
        let mut input = b"a,1\n\"b,2\n".to_vec();
        input.extend(b"c,3\n".repeat(100_000));
        let mut records = records(Pieces::of(&input, CHUNK_BYTES), 1_000);
        let mut lines = Vec::new();
        while let Some(more) = records.chunk().unwrap() {
            assert!(records.carry.capacity() <= 2 * CHUNK_BYTES);
            lines.extend(more);
        }
        assert_eq!(lines.len(), 2);
        let rest = &input[4..];
        let cut = lines[1].cut.unwrap();
        assert_eq!(cut.size, rest.len() as u64);
        assert_eq!(cut.hash, Fingerprint::of_bytes(rest).into_bytes());
        assert_eq!(lines[1].payload, &rest[..CUT_BYTES]);
        assert!(lines[1].partial);
    }

    #[test]
    fn a_record_over_the_limit_is_cut_and_the_next_one_comes() {
        let long = format!("\"{}\",1\n", "x\n".repeat(60));
        let input = format!("{long}b,2\n");
        for step in [1, 7, 1_000] {
            let lines = all(records(Pieces::of(input.as_bytes(), step), 100));
            let cut = lines[0].cut.unwrap();
            assert_eq!(cut.size, long.len() as u64, "{step}");
            assert_eq!(lines[1].payload, r#"{"id":"b","amount":"2"}"#.as_bytes());
            assert_eq!((lines[1].number, lines[1].mark.start), (62, cut.size));
        }
    }

    #[test]
    fn a_header_without_an_end_is_refused_and_half_a_header_has_no_records() {
        let header = |text: &str| Header::read(&mut text.as_bytes(), 100).unwrap();
        assert!(
            header(&format!("\"id,{}", "x".repeat(9_000)))
                .names(100)
                .is_err()
        );
        let half = header("id,amo");
        assert!(!half.whole);
        let whole = header("\u{feff}\r\n\nid,\"a\nb\"\r\nx,1\r\n");
        assert_eq!(whole.names(100).unwrap(), ["id", "a\nb"]);
        assert!(whole.whole);
        assert_eq!((whole.end, whole.next), (16, 5));
        let old = header("\rid\rx,1\r");
        assert_eq!(
            (old.names(100).unwrap(), old.end, old.next),
            (vec!["id".to_owned()], 4, 3)
        );
    }

    proptest! {
        #[test]
        fn records_are_those_of_another_reader_of_csv(input in "[a,\"\r\n]{0,40}") {
            let input = format!("{input}\nend,1\n");
            let mut lines = all(records(Pieces::of(input.as_bytes(), 3), 1_000));
            lines.retain(|line| line.payload.starts_with(b"{"));
            let mut reader = csv::ReaderBuilder::new()
                .has_headers(false)
                .flexible(true)
                .from_reader(input.as_bytes());
            let names = ["id", "amount"];
            let cell = |text: &str| match text {
                "" => "null".to_owned(),
                text => serde_json::json!(text).to_string(),
            };
            let object = |record: csv::StringRecord| {
                format!(r#"{{"id":{},"amount":{}}}"#, cell(&record[0]), cell(&record[1]))
            };
            let expected: Vec<String> = reader
                .records()
                .map(Result::unwrap)
                .filter(|record| record.len() == names.len())
                .map(object)
                .collect();
            // A last record in open quotes is one to the other reader, which cannot know that it is cut.
            let cut = input.len() as u64 != lines.last().map_or(0, |line| line.mark.end);
            let texts = texts(&lines);
            if cut {
                prop_assert!(expected.len() - texts.len() <= 1);
                prop_assert_eq!(&texts[..], &expected[..texts.len()]);
            } else {
                prop_assert_eq!(texts, expected);
            }
        }
    }
}
