//! A connection that runs Semel's own statements: a fault it meets is written into the unit's record, and names
//! the file.

use std::path::Path;
use std::sync::Arc;

use semel_core::{Class, Fault};
use semel_sql::Watch;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Arguments, Encode, Executor, SqlSafeStr, SqlStr, Sqlite, Type};

use crate::bulk::Bulk;
use crate::fault;

/// A connection with the record of what went wrong on it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: SqliteConnection,
    pub(crate) watch: Watch,
    file: Arc<Path>,
}

/// Arguments of one statement.
#[derive(Default)]
pub(crate) struct Args(SqliteArguments);

impl Args {
    /// Adds a value.
    pub(crate) fn push<'t, T: Encode<'t, Sqlite> + Type<Sqlite>>(&mut self, value: T) {
        self.0
            .add(value)
            .expect("encoding for SQLite copies the value and cannot fail");
    }

    /// The driver's form.
    pub(crate) fn into_inner(self) -> SqliteArguments {
        self.0
    }

    /// With a value.
    pub(crate) fn with<'t, T: Encode<'t, Sqlite> + Type<Sqlite>>(mut self, value: T) -> Self {
        self.push(value);
        self
    }
}

impl Link {
    pub(crate) fn new(connection: SqliteConnection, file: Arc<Path>) -> Self {
        Self {
            connection,
            watch: Watch::new(fault::classify),
            file,
        }
    }

    /// Whether statements may go on: nothing has failed since the last savepoint that was gone back to. After
    /// SQLite ended a transaction by itself, a further statement would commit on its own (TRAPS T17).
    ///
    /// # Errors
    /// The first fault.
    pub(crate) fn sound(&self) -> Result<(), Fault> {
        self.watch.verdict().map_or(Ok(()), Err)
    }

    /// Runs statements without arguments.
    pub(crate) async fn run(&mut self, sql: impl SqlSafeStr) -> Result<(), Fault> {
        self.try_run(sql).await.map_err(|error| self.note(error))
    }

    /// Runs statements without arguments, and leaves it to the caller what an error means.
    pub(crate) async fn try_run(&mut self, sql: impl SqlSafeStr) -> Result<(), sqlx::Error> {
        self.connection.execute(sql.into_sql_str()).await.map(drop)
    }

    /// Runs one statement and returns how many rows it changed.
    pub(crate) async fn change(&mut self, sql: impl SqlSafeStr, args: Args) -> Result<u64, Fault> {
        let statement = sqlx::query_with(sql.into_sql_str(), args.0);
        let done = self.connection.execute(statement).await;
        done.map(|done| done.rows_affected())
            .map_err(|error| self.note(error))
    }

    /// Runs one statement and returns its rows, read to the end: an error may come last.
    pub(crate) async fn fetch(
        &mut self,
        sql: impl SqlSafeStr,
        args: Args,
    ) -> Result<Vec<SqliteRow>, Fault> {
        let statement = sqlx::query_with(sql.into_sql_str(), args.0);
        self.connection
            .fetch_all(statement)
            .await
            .map_err(|error| self.note(error))
    }

    /// Runs a bulk statement over all items and returns how many rows it changed.
    pub(crate) async fn change_all<T>(
        &mut self,
        bulk: &Bulk,
        items: &[T],
        row: impl Fn(&mut Args, &T),
        tail: impl Fn(&mut Args),
    ) -> Result<u64, Fault> {
        let mut changed = 0;
        for (sql, part) in bulk.parts(items) {
            changed += self
                .change(sql.clone(), arguments(part, &row, &tail))
                .await?;
        }
        Ok(changed)
    }

    /// Runs a bulk statement over all items and returns its rows.
    pub(crate) async fn fetch_all<T>(
        &mut self,
        bulk: &Bulk,
        items: &[T],
        row: impl Fn(&mut Args, &T),
        tail: impl Fn(&mut Args),
    ) -> Result<Vec<SqliteRow>, Fault> {
        let mut rows = Vec::new();
        for (sql, part) in bulk.parts(items) {
            rows.append(
                &mut self
                    .fetch(sql.clone(), arguments(part, &row, &tail))
                    .await?,
            );
        }
        Ok(rows)
    }

    /// Records an error and makes it a fault.
    pub(crate) fn note(&mut self, error: sqlx::Error) -> Fault {
        self.watch.record(&error);
        fault::of_store(&self.file, fault::classify(&error), error)
    }
}

/// No more arguments behind the rows.
pub(crate) fn no_tail(_: &mut Args) {}

/// A fault of Semel's own statements: what would be a message's poison in the user's is a reason to stop here.
pub(crate) fn own(fault: Fault) -> Fault {
    match fault.class {
        Class::Poison | Class::Unclassified => fault::stopped(fault),
        Class::Busy | Class::Down | Class::Stop | Class::Retry => fault,
    }
}

fn arguments<T>(part: &[T], row: &impl Fn(&mut Args, &T), tail: &impl Fn(&mut Args)) -> Args {
    let mut args = Args::default();
    for item in part {
        row(&mut args, item);
    }
    tail(&mut args);
    args
}

/// The text of a statement that is written down in a file.
pub(crate) const fn fixed(sql: &'static str) -> SqlStr {
    SqlStr::from_static(sql)
}
