//! Printing: data to stdout, words to stderr. A closed pipe is an ordinary end and never a panic.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// One JSON object a line.
    Json,
    /// Tables and sentences.
    Words,
}

/// Prints one object as a line.
///
/// # Errors
///
/// The pipe is closed.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value).map_err(io::Error::other)?;
    line.push(b'\n');
    bytes(&line)
}

/// Prints text as it is.
///
/// # Errors
///
/// The pipe is closed.
pub(crate) fn text(text: &str) -> io::Result<()> {
    bytes(plain(text).as_bytes())
}

/// Text that cannot steer a terminal: control characters and those that turn the direction of writing are
/// spelled out. Ids and payloads come from whoever sends messages.
fn plain(text: &str) -> Cow<'_, str> {
    let steers = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    text.chars()
        .fold(String::with_capacity(text.len()), |mut plain, c| {
            if steers(c) {
                plain.extend(c.escape_unicode())
            } else {
                plain.push(c)
            }
            plain
        })
        .into()
}

/// A value inside a sentence or line: line ends and tabs are spelled out too, so that text of a sender makes no line of
/// its own.
pub(crate) fn value(text: &str) -> Cow<'_, str> {
    if !text.contains(['\n', '\r', '\t']) {
        return Cow::Borrowed(text);
    }
    let spelled = |c: char| match c {
        '\n' | '\r' | '\t' => c.escape_default().to_string(),
        _ => c.to_string(),
    };
    text.chars().map(spelled).collect::<String>().into()
}

/// Prints one line.
///
/// # Errors
///
/// The pipe is closed.
pub(crate) fn line(line: &str) -> io::Result<()> {
    text(&format!("{line}\n"))
}

fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Says something on stderr. If nobody listens, nothing is lost.
pub(crate) fn say(words: &str) {
    let _ = writeln!(io::stderr().lock(), "semel: {}", plain(words));
}

/// Rows in columns, as wide as their widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    heads: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

/// A cell longer than this is cut: the whole is in `--json`.
const CELL_CHARS_MAX: usize = 60;

/// Columns are fitted to this many rows at once, so that a long list needs no more memory than a short one.
const ROWS_MAX: usize = 1_000;

impl Table {
    pub(crate) fn new(heads: &'static [&'static str]) -> Self {
        Self {
            heads,
            rows: Vec::new(),
        }
    }

    /// Adds a row, and prints what is there when it is enough.
    ///
    /// # Errors
    ///
    /// The pipe is closed.
    pub(crate) fn add(&mut self, cells: Vec<String>) -> io::Result<()> {
        self.row(cells);
        if self.rows.len() < ROWS_MAX {
            Ok(())
        } else {
            self.print()
        }
    }

    /// Prints the rows that are there, under their heads.
    ///
    /// # Errors
    ///
    /// The pipe is closed.
    pub(crate) fn print(&mut self) -> io::Result<()> {
        let page = self.text();
        self.rows.clear();
        text(&page)
    }

    fn row(&mut self, cells: Vec<String>) {
        let cells = cells.into_iter().map(|cell| {
            let clean = cell.replace(['\n', '\r', '\t'], " ");
            match clean.char_indices().nth(CELL_CHARS_MAX) {
                Some((at, _)) => format!("{}…", &clean[..at]),
                None => clean,
            }
        });
        self.rows.push(cells.collect());
    }

    /// The whole table as text; nothing at all where there is no row.
    fn text(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let width = |column: usize| {
            let cells = self
                .rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count());
            cells.chain([self.heads[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let heads = self.heads.iter().map(|&head| head.to_owned()).collect();
        let lines = std::iter::once(&heads)
            .chain(&self.rows)
            .map(|row: &Vec<String>| {
                let cells = row
                    .iter()
                    .zip(&widths)
                    .map(|(cell, &width)| format!("{cell:<width$}"));
                format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
            });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["key", "code"]);
        assert_eq!(table.text(), "");
        table.row(vec!["long-key".to_owned(), "x".to_owned()]);
        table.row(vec!["k\n".to_owned(), "poison".to_owned()]);
        assert_eq!(
            table.text(),
            "key       code\nlong-key  x\nk         poison\n"
        );
    }

    #[test]
    fn e127_text_of_a_sender_makes_no_line_of_its_own() {
        assert_eq!(value("pay-1"), "pay-1");
        assert_eq!(value("a\nok\r\tb\\"), "a\\nok\\r\\tb\\");
    }

    #[test]
    fn e127_text_of_a_sender_cannot_steer_the_terminal() {
        assert_eq!(plain("pay-1\n\tok"), "pay-1\n\tok");
        assert_eq!(plain("\u{1b}]0;pwn\u{7}"), "\\u{1b}]0;pwn\\u{7}");
        assert_eq!(plain("a\rb\u{9b}\u{202e}"), "a\\u{d}b\\u{9b}\\u{202e}");
    }
}
