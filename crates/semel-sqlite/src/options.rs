//! Which file, and how long to wait for it.

use std::path::PathBuf;

use semel_core::Fault;
use semel_sql::Extension;

/// Which file holds the ledger, and how it is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// `sqlite:PATH` or `sqlite://PATH`. A relative path is relative to the working directory.
    pub url: String,
    /// Creates the file if it is missing.
    pub create: bool,
    /// Runs missing migrations when the ledger is opened. Without it they are a `Stop`.
    pub migrate: bool,
    /// How long to wait for another process that holds the write lock, ms; beyond it the fault is `Busy`.
    pub busy_timeout_ms: u32,
    /// Migrations of handlers' tables.
    pub extensions: Vec<Extension>,
}

impl Options {
    /// Defaults behind a URL: the file is created and migrated.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            create: true,
            migrate: true,
            // Longer than any healthy unit of another process, shorter than a user's patience.
            busy_timeout_ms: 10_000,
            extensions: Vec::new(),
        }
    }
}

/// The file that a URL names.
///
/// # Errors
/// `Stop` when the URL is not one of a SQLite file.
pub(crate) fn path_of(url: &str) -> Result<PathBuf, Fault> {
    let rest = url
        .strip_prefix("sqlite:")
        .ok_or_else(|| bad(url, "write `sqlite:PATH`"))?;
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() || path.starts_with(":memory:") {
        return Err(bad(
            url,
            "a ledger in memory would be forgotten; name a file, such as `sqlite:semel.db`",
        ));
    }
    if path.contains('?') {
        return Err(bad(
            url,
            "parameters are not taken; write `sqlite:PATH` alone",
        ));
    }
    Ok(PathBuf::from(path))
}

fn bad(url: &str, what: &str) -> Fault {
    Fault::refused(format!("`{url}` is not the URL of a SQLite file: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_file_in_either_spelling() {
        for (url, path) in [
            ("sqlite:semel.db", "semel.db"),
            ("sqlite:/var/lib/semel.db", "/var/lib/semel.db"),
            ("sqlite://semel.db", "semel.db"),
            ("sqlite:///var/lib/semel.db", "/var/lib/semel.db"),
        ] {
            assert_eq!(path_of(url).unwrap(), PathBuf::from(path), "{url}");
        }
    }

    #[test]
    fn what_would_forget_the_ledger_is_refused() {
        for url in [
            "sqlite::memory:",
            "sqlite:",
            "postgres://x",
            "sqlite:a.db?mode=memory",
        ] {
            assert_eq!(
                path_of(url).unwrap_err().class,
                semel_core::Class::Stop,
                "{url}"
            );
        }
    }
}
