//! A query taken apart, since reading its text consumes it, and put together again as another one.

use sqlx::error::BoxDynError;
use sqlx::{Database, Execute, SqlStr};

/// Whether a statement may be kept in its session under a name, for the next time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// As the query itself wants.
    Kept,
    /// Never: the session may be somebody else's a moment later (TRAPS T22).
    None,
}

/// A query, as it is handed to the driver.
pub struct Apart<DB: Database> {
    statement: Option<DB::Statement>,
    arguments: Option<Result<Option<DB::Arguments>, BoxDynError>>,
    persistent: bool,
    sql: SqlStr,
}

impl<DB: Database> Apart<DB> {
    /// Takes a query apart.
    pub fn of<'q>(mut query: impl Execute<'q, DB>, names: Names) -> Self {
        Self {
            statement: query.statement().cloned(),
            arguments: Some(query.take_arguments()),
            persistent: names == Names::Kept && query.persistent(),
            sql: query.sql(),
        }
    }

    /// Its text.
    pub(crate) fn text(&self) -> &str {
        self.sql.as_str()
    }
}

impl<DB: Database> Execute<'_, DB> for Apart<DB> {
    fn sql(self) -> SqlStr {
        self.sql
    }

    fn statement(&self) -> Option<&DB::Statement> {
        self.statement.as_ref()
    }

    fn take_arguments(&mut self) -> Result<Option<DB::Arguments>, BoxDynError> {
        self.arguments.take().unwrap_or(Ok(None))
    }

    fn persistent(&self) -> bool {
        self.persistent
    }
}

impl<DB: Database> std::fmt::Debug for Apart<DB> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Apart")
            .field("sql", &self.sql.as_str())
            .field("persistent", &self.persistent)
            .finish_non_exhaustive()
    }
}
