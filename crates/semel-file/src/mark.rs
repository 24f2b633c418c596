//! The mark behind a line: what is needed to continue there, and to notice that the file is another one.

use std::io::{self, Read, Seek, SeekFrom};

use semel_core::Fault;
use semel_core::ledger::Reached;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of a mark: four big-endian numbers.
pub(crate) const MARK_BYTES: usize = 32;

/// Where a line lies in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// First byte of the line.
    pub(crate) start: u64,
    /// First byte behind its end.
    pub(crate) end: u64,
    /// XXH3 of the bytes from `start` to `end`. It notices a changed file; it decides no identity.
    pub(crate) hash: u64,
    /// The number of the next line (a CSV record may span several).
    pub(crate) next: u64,
}

impl Mark {
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        for number in [self.start, self.end, self.hash, self.next] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != MARK_BYTES {
            return None;
        }
        let mut numbers = bytes
            .chunks_exact(8)
            .map(|n| u64::from_be_bytes(n.try_into().expect("eight bytes")));
        let mut next = || numbers.next().expect("four numbers");
        Some(Self {
            start: next(),
            end: next(),
            hash: next(),
            next: next(),
        })
    }
}

/// How many bytes of a file are done, by its stored position; `None` when no file source wrote it.
#[must_use]
pub fn done_bytes(reached: &Reached) -> Option<u64> {
    Mark::read(&reached.mark).map(|mark| mark.end)
}

const RESTART: &str = "put the old file back, give the new one another name, or read it from its first line with \
                       `--from-start` (what was applied is not applied again)";

/// Goes to the place behind the stored position and proves that the file is still the one that was read.
pub(crate) fn resume<F: Read + Seek>(
    file: &mut F,
    size: u64,
    reached: &Reached,
) -> Result<Option<Mark>, Fault> {
    let path = &reached.partition;
    if reached.next <= 1 {
        return Ok(None);
    }
    let line = reached.next - 1;
    let Some(mut mark) = Mark::read(&reached.mark) else {
        return Err(Fault::stop(format!(
            "the stored position of `{path}` (line {line}) was not written by a file source"
        )));
    };
    if size < mark.end {
        return Err(Fault::stop(format!(
            "`{path}` has {size} bytes, but its line {line}, which is done, ended at byte {}: the file shrank or was \
             replaced; {RESTART}",
            mark.end
        )));
    }
    let last = hash(file, &mark).map_err(|e| Fault::down(format!("cannot read `{path}`: {e}")))?;
    let Some(last) = last else {
        return Err(Fault::stop(format!(
            "`{path}` was changed: line {line}, which is done, reads differently now; {RESTART}"
        )));
    };
    if last != b'\n' && size > mark.end {
        mark.end += line_end(file).map_err(|e| Fault::down(format!("cannot read `{path}`: {e}")))?.ok_or_else(|| {
            Fault::stop(format!(
                "line {line} of `{path}` was read when it was the last one and had no line end; it is done, but was \
                 continued since: write each line with its end at once; {RESTART}"
            ))
        })?;
    }
    file.seek(SeekFrom::Start(mark.end))
        .map_err(|e| Fault::down(format!("cannot read `{path}`: {e}")))?;
    Ok(Some(mark))
}

/// The last byte of the marked line, if its hash is the marked one. The file stands behind it then.
fn hash<F: Read + Seek>(file: &mut F, mark: &Mark) -> io::Result<Option<u8>> {
    file.seek(SeekFrom::Start(mark.start))?;
    let mut hash = Xxh3::new();
    let mut last = b'\n';
    let mut left = mark.end.saturating_sub(mark.start);
    let mut buffer = [0; 8 * 1024];
    while left > 0 {
        let want = usize::try_from(left)
            .unwrap_or(buffer.len())
            .min(buffer.len());
        file.read_exact(&mut buffer[..want])?;
        hash.update(&buffer[..want]);
        last = buffer[want - 1];
        left -= want as u64;
    }
    Ok((hash.digest() == mark.hash).then_some(last))
}

/// The length of the line end that comes next; `None` when something else does.
fn line_end<F: Read>(file: &mut F) -> io::Result<Option<u64>> {
    let mut next = [0; 2];
    let mut got = 0;
    while got < next.len() {
        match file.read(&mut next[got..])? {
            0 => break,
            n => got += n,
        }
    }
    Ok(match &next[..got] {
        [b'\n', ..] => Some(1),
        [b'\r', b'\n'] => Some(2),
        _ => None,
    })
}
