//! Which ledger a URL means. The one place that knows schemes.

use std::path::{Path, PathBuf};

use crate::config::masked;

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

    /// What is wrong with a ledger's URL. The URL is shown without its password.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub(crate) fn checked(url: &str) -> Result<Self, String> {
        let shown = masked(url);
        let Some(dialect) = Self::of(url) else {
            return Err(format!(
                "`{shown}` is no ledger's URL; it starts with `sqlite:` or `postgres://`"
            ));
        };
        if dialect == Self::Sqlite && url.contains('?') {
            return Err(format!(
                "`{shown}` has parameters, which have no effect here; write `sqlite:PATH` alone"
            ));
        }
        if dialect == Self::Sqlite && Self::sqlite_file(url, Path::new("")).is_none() {
            return Err(format!(
                "`{shown}` names no file: a ledger in memory would be forgotten; write `sqlite:PATH`"
            ));
        }
        if dialect == Self::Postgres {
            semel_postgres::Options::new(url).check()?;
        }
        Ok(dialect)
    }

    /// What is wrong with the name of PostgreSQL's schema.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub(crate) fn schema_checked(schema: &str) -> Result<(), String> {
        let mut options = semel_postgres::Options::new("postgres://localhost/semel");
        schema.clone_into(&mut options.schema);
        options.check()
    }

    /// What is wrong with the URL of a pooler in transaction mode, which [`Self::checked`] found right.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub(crate) fn pooler_checked(url: &str) -> Result<(), String> {
        let mut options = semel_postgres::Options::new(url);
        options.pooler = semel_postgres::Pooler::Transaction;
        options.check()
    }

    /// The file of a SQLite URL (`sqlite:PATH`, `sqlite://PATH`), relative to the config file's folder. None for a
    /// database in memory.
    pub(crate) fn sqlite_file(url: &str, base: &Path) -> Option<PathBuf> {
        let rest = url.strip_prefix("sqlite:")?;
        let path = rest.strip_prefix("//").unwrap_or(rest);
        (!path.is_empty() && !path.starts_with(":memory:")).then(|| base.join(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sqlite_path_is_relative_to_the_config_files_folder() {
        let file = |url| Dialect::sqlite_file(url, Path::new("conf"));
        assert_eq!(file("sqlite:semel.db"), Some("conf/semel.db".into()));
        assert_eq!(file("sqlite://semel.db"), Some("conf/semel.db".into()));
        assert_eq!(file("sqlite:///var/semel.db"), Some("/var/semel.db".into()));
        assert_eq!(file("sqlite::memory:"), None);
    }

    #[test]
    fn a_url_that_would_be_half_understood_is_refused() {
        for url in [
            "sqlite:",
            "sqlite::memory:",
            "sqlite:a.db?mode=ro",
            "mysql://h/d",
            "semel.db",
        ] {
            assert!(Dialect::checked(url).is_err(), "{url}");
        }
        assert_eq!(
            Dialect::checked("postgres://h/d?sslmode=require"),
            Ok(Dialect::Postgres)
        );
        let url = "postgres://h/d?options=-c%20x%3Dy";
        assert_eq!(Dialect::checked(url), Ok(Dialect::Postgres));
        assert!(Dialect::pooler_checked(url).is_err());
    }
}
