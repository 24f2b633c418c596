//! Records of a CSV file as JSON objects of text values, and null for an empty cell: a file of several kinds of
//! operations has columns that most of its records leave out. A record is read whole before it is cut, so an
//! unclosed quote reads the rest of the file into memory.
//!
//! A record is whole when its line end is there: half a JSON object is no JSON object, but half a record may be a
//! record with a smaller amount. The last record without a line end is handed out as it stands in the file, which
//! nothing takes for a message, and the position stays before it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use csv::{ByteRecord, Position, Reader, ReaderBuilder};
use semel_core::Fault;
use semel_core::fingerprint::Fingerprint;
use semel_core::message::Cut;
use xxhash_rust::xxh3::xxh3_64;

use crate::CUT_BYTES;
use crate::lines::Line;
use crate::mark::Mark;

/// Records handed over at once.
const CHUNK_RECORDS: usize = 256;

/// Reads records behind a header.
#[derive(Debug)]
pub(crate) struct Records {
    reader: Reader<File>,
    /// The same file, to hash the bytes of a record for its mark.
    raw: File,
    names: Vec<String>,
    bytes_max: usize,
    /// What the file is known to hold: a record that ends before it is not the last one.
    size: u64,
    ended: bool,
}

impl Records {
    /// Reads the header, and goes behind `mark`.
    pub(crate) fn open(
        mut file: File,
        path: &Path,
        mark: Option<Mark>,
        bytes_max: usize,
    ) -> Result<Self, Fault> {
        let shown = path.display();
        let away = |e: io::Error| Fault::down(format!("cannot read `{shown}`: {e}"));
        file.seek(SeekFrom::Start(0)).map_err(away)?;
        let raw = File::open(path).map_err(away)?;
        let mut reader = ReaderBuilder::new().flexible(true).from_reader(file);
        let header = reader
            .headers()
            .map_err(|e| Fault::refused(format!("the header of `{shown}` cannot be read: {e}")))?;
        let names: Vec<String> = header.iter().map(str::to_owned).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Fault::refused(format!(
                "the header of `{shown}` names `{}` twice: rename a column",
                twice[0]
            )));
        }
        if let Some(mark) = mark {
            let mut position = Position::new();
            position.set_byte(mark.end).set_line(mark.next);
            reader
                .seek(position)
                .map_err(|e| Fault::down(format!("cannot read `{shown}`: {e}")))?;
        }
        Ok(Self {
            reader,
            raw,
            names,
            bytes_max,
            size: 0,
            ended: false,
        })
    }

    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<Line>>> {
        if self.ended {
            return Ok(None);
        }
        let mut lines = Vec::new();
        let mut record = ByteRecord::new();
        while lines.len() < CHUNK_RECORDS {
            if !self
                .reader
                .read_byte_record(&mut record)
                .map_err(io::Error::other)?
            {
                self.ended = true;
                break;
            }
            lines.push(self.line(&record)?);
        }
        Ok(Some(lines))
    }

    fn line(&mut self, record: &ByteRecord) -> io::Result<Line> {
        let begin = record.position().cloned().unwrap_or_else(Position::new);
        let behind = self.reader.position().clone();
        let (start, end) = (begin.byte(), behind.byte());
        let raw = self.bytes(start, end)?;
        // The reader leaves the `\n` of a `\r\n` to the next record, and counts the line there.
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let before = raw
            .iter()
            .take_while(|byte| is_end(byte))
            .filter(|byte| **byte == b'\n')
            .count();
        let number = begin.line() + before as u64;
        let next = behind.line() + u64::from(raw.last() != Some(&b'\n'));
        let mark = Mark {
            start,
            end,
            hash: xxh3_64(&raw),
            next,
        };
        let partial = self.is_last(end)? && !is_whole(&raw);
        let object = if partial { None } else { self.object(record) };
        let payload = object.unwrap_or_else(|| {
            let content = raw.iter().position(|byte| !is_end(byte)).unwrap_or(0);
            raw[content..].trim_ascii_end().to_vec()
        });
        if payload.len() <= self.bytes_max {
            return Ok(Line {
                number,
                payload: payload.into(),
                cut: None,
                mark,
                partial,
            });
        }
        let hash = Fingerprint::of_bytes(&payload).into_bytes();
        let cut = Some(Cut {
            size: payload.len() as u64,
            hash,
        });
        let head = payload[..payload.len().min(CUT_BYTES)].to_vec();
        Ok(Line {
            number,
            payload: head.into(),
            cut,
            mark,
            partial,
        })
    }

    /// The record as JSON. `None` where it does not fit the header or is not UTF-8: such a record is
    /// handed out as it stands in the file, and ends as malformed there where content is judged.
    fn object(&self, record: &ByteRecord) -> Option<Vec<u8>> {
        if record.len() != self.names.len() {
            return None;
        }
        let mut json = Vec::with_capacity(record.as_slice().len() * 2 + 16 * self.names.len());
        json.push(b'{');
        for (i, (name, value)) in self.names.iter().zip(record).enumerate() {
            if i > 0 {
                json.push(b',');
            }
            serde_json::to_writer(&mut json, name).ok()?;
            json.push(b':');
            let text = std::str::from_utf8(value).ok()?;
            serde_json::to_writer(&mut json, &(!text.is_empty()).then_some(text)).ok()?;
        }
        json.push(b'}');
        Some(json)
    }

    fn is_last(&mut self, end: u64) -> io::Result<bool> {
        if end >= self.size {
            self.size = self.raw.metadata()?.len();
        }
        Ok(end >= self.size)
    }

    fn bytes(&mut self, start: u64, end: u64) -> io::Result<Vec<u8>> {
        self.raw.seek(SeekFrom::Start(start))?;
        let mut raw = Vec::new();
        (&self.raw)
            .take(end.saturating_sub(start))
            .read_to_end(&mut raw)?;
        Ok(raw)
    }
}

/// Whether a record ends with its line end, and not with one inside quotes: only then what comes behind it is
/// another record.
fn is_whole(raw: &[u8]) -> bool {
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(raw.chain(b"x".as_slice()));
    let mut record = ByteRecord::new();
    let mut records = 0;
    while records < 2 && matches!(reader.read_byte_record(&mut record), Ok(true)) {
        records += 1;
    }
    records == 2
}
