//! Which ledger a URL means. The one place that knows schemes.

use std::path::{Path, PathBuf};

/// The databases this build can keep a ledger in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// By the URL's scheme.
    pub(crate) fn of(url: &str) -> Option<Self> {
        match url.split_once(':')?.0 {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            _ => None,
        }
    }

    /// The file of a SQLite URL (`sqlite:PATH`, `sqlite://PATH`), relative to the config file's folder. None for a
    /// database in memory.
    pub(crate) fn sqlite_file(url: &str, base: &Path) -> Option<PathBuf> {
        let rest = url.strip_prefix("sqlite:")?;
        let path = rest.strip_prefix("//").unwrap_or(rest);
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        (!path.is_empty() && path != ":memory:").then(|| base.join(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sqlite_path_is_relative_to_the_config_files_folder() {
        let file = |url| Dialect::sqlite_file(url, Path::new("conf"));
        assert_eq!(file("sqlite:semel.db"), Some("conf/semel.db".into()));
        assert_eq!(file("sqlite://semel.db?mode=rwc"), Some("conf/semel.db".into()));
        assert_eq!(file("sqlite:///var/semel.db"), Some("/var/semel.db".into()));
        assert_eq!(file("sqlite::memory:"), None);
    }
}
