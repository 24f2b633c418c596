//! One opened file with its format.

use std::fs::File;
use std::io;
use std::path::Path;

use semel_core::ledger::Reached;
use semel_core::{Class, Fault};

use crate::csv_records::Records;
use crate::lines::{Line, Lines};
use crate::mark;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One message a line.
    JsonLines,
    /// A header, then one message a record: a JSON object of text values, in the header's order.
    Csv,
}

impl Format {
    /// The format by the name: `.csv` is CSV, anything else JSON Lines.
    #[must_use]
    pub fn of_name(path: &Path) -> Self {
        let csv = path
            .extension()
            .is_some_and(|ext| ext.eq_ignore_ascii_case("csv"));
        if csv { Self::Csv } else { Self::JsonLines }
    }
}

/// A file being read.
#[derive(Debug)]
pub(crate) enum Feed {
    Lines(Box<Lines<File>>),
    Csv(Box<Records<File>>),
}

impl Feed {
    /// Opens a file behind `reached`, or at its beginning; also tells how many bytes are behind it.
    pub(crate) fn open(
        path: &Path,
        format: Format,
        bytes_max: usize,
        reached: Option<&Reached>,
    ) -> Result<(Self, u64), Fault> {
        let shown = path.display();
        let away = |e: io::Error| {
            Fault::down(format!(
                "cannot open `{shown}`: {e}; check `paths` of the source"
            ))
        };
        let mut file = File::open(path).map_err(away)?;
        let about = file.metadata().map_err(away)?;
        if about.is_dir() {
            return Err(Fault::refused(format!(
                "`{shown}` is a folder; name the files in it in `paths` of the source"
            )));
        }
        let size = about.len();
        let mark = match reached {
            Some(reached) => mark::resume(&mut file, size, reached)?,
            None => None,
        };
        let skipped = mark.map_or(0, |mark| mark.end);
        let feed = match format {
            Format::JsonLines => Self::Lines(Box::new(Lines::new(file, mark, bytes_max))),
            Format::Csv => Self::Csv(Box::new(Records::open(file, path, mark, bytes_max)?)),
        };
        Ok((feed, skipped))
    }

    /// Whether the file is not the one that the position was stored for.
    pub(crate) fn is_another(path: &Path, reached: &Reached) -> Result<bool, Fault> {
        let shown = path.display();
        let away = |e: io::Error| Fault::down(format!("cannot open `{shown}`: {e}"));
        let mut file = File::open(path).map_err(away)?;
        let size = file.metadata().map_err(away)?.len();
        match mark::resume(&mut file, size, reached) {
            Ok(_) => Ok(false),
            Err(fault) if fault.class == Class::Stop => Ok(true),
            Err(fault) => Err(fault),
        }
    }

    /// The messages of the next chunk; `None` at the end.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<Line>>> {
        match self {
            Self::Lines(lines) => lines.chunk(),
            Self::Csv(records) => records.chunk(),
        }
    }
}
