//! How an error of the driver is told to people.

use std::error::Error;
use std::fmt;

/// An error of the driver without what misleads: behind PostgreSQL's message sqlx puts a line of the server's own
/// source code, which reads like a line of the statement.
#[derive(Debug)]
pub struct Told(pub sqlx::Error);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&told(&self.0))
    }
}

impl Error for Told {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            // All that it says is told.
            sqlx::Error::Database(_) => None,
            other => other.source(),
        }
    }
}

/// What [`Told`] says of an error that is not given away.
pub(crate) fn told(error: &sqlx::Error) -> String {
    if let sqlx::Error::Database(database) = error {
        let (all, message) = (database.to_string(), database.message());
        let rest = all.strip_prefix(message);
        if rest.is_some_and(|rest| rest.starts_with(" at line ")) {
            return format!("error returned from database: {message}");
        }
    }
    error.to_string()
}
