//! Files and standard input as sources.
//!
//! # Delivery guarantees
//!
//! The bad news first:
//! - Standard input cannot be read again: what was not acked when the process ends is lost unless the
//!   sender sends it again. (Sent again, it is a duplicate where it was applied.)
//! - A file is a log that must only grow. If it shrank, or the line before the stored position changed,
//!   the source stops instead of guessing. Changes further up are not noticed.
//! - A last line without a line end is done if it is one JSON object. If that is continued later, the source stops
//!   and says so: write a line with its end in one go.
//! - Any other last line without a line end may be half written. It is handed out with a header `incomplete` and the
//!   position stays before it, so it comes again until its line end is there.
//!
//! Each path is a partition, named as it is written, with lines from 1. Empty lines are counted and
//! skipped: the position moves behind them with the next line that is delivered. A byte order mark at
//! the start of a file and the `\r` of a `\r\n` are not part of the content; anything else is passed as
//! it is, UTF-8 or not. Of a line longer than the limit only the first 64 KiB are handed out, with its
//! size and hash, and no more than that is ever in memory.

mod csv_records;
mod feed;
mod file;
mod intake;
mod lines;
mod mark;
mod stdin;

pub use feed::Format;
pub use file::{FileSource, Settings, Start};
pub use mark::done_bytes;
pub use stdin::{PARTITION as STDIN_PARTITION, StdinSource};

/// The longest line handed out whole, unless the settings say otherwise: 1 MiB.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// What is kept of a longer line: 64 KiB, as much as a dead letter keeps.
pub const CUT_BYTES: usize = 64 * 1024;
