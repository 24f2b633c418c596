//! One connection, set up, and that it leads to a primary. No pool: a session has one owner, and is thrown away after
//! any fault.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use semel_core::ledger::LaneId;
use semel_core::{Class, Fault};
use semel_sql::{Apart, Tx, Watch};
use sqlx::postgres::{PgConnectOptions, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{
    ConnectOptions, Connection, Either, Error, Execute, Executor, PgConnection, Postgres, SqlStr,
};

use crate::dress::Dress;
use crate::fault::{classify, fault, has_code};
use crate::options::Options;
use crate::sql;

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Units of work, and the ledger's own small transactions.
    Work,
    /// Asking after a lost commit: waits for the fence's lock a bounded time.
    Resolve,
    /// Operators' queries: writes nothing, as long as it likes.
    Read,
    /// DDL: as long as it takes.
    Migrate,
}

/// What is to be one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    /// All statements together.
    Whole,
    /// Each statement alone; together only where a pooler would hand them to different sessions.
    Each,
}

/// A connection and its dress: an executor of statements.
pub(crate) struct Session {
    connection: PgConnection,
    dress: Dress,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// Begins what is to be one transaction.
    pub(crate) async fn begin(&mut self, span: Span) -> Result<(), Error> {
        let begun = match (&self.dress, span) {
            (Dress::Kept, Span::Each) => return Ok(()),
            (Dress::Kept, Span::Whole) => {
                self.connection.execute(sqlx::raw_sql(sql!("begin"))).await
            }
            (Dress::Each(begin), _) => {
                let begin = sqlx::raw_sql(sqlx::AssertSqlSafe(begin.clone()));
                self.connection.execute(begin).await
            }
        };
        begun.map(drop).map_err(no_primary)
    }

    /// Commits it.
    pub(crate) async fn commit(&mut self, span: Span) -> Result<(), Error> {
        self.end(span, "COMMIT").await
    }

    /// Commits it if what was done went well, else undoes it.
    pub(crate) async fn ended<T>(
        &mut self,
        span: Span,
        done: Result<T, Error>,
    ) -> Result<T, Error> {
        let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.end(span, end).await;
        done.and_then(|done| ended.map(|()| done))
    }

    async fn end(&mut self, span: Span, sql: &'static str) -> Result<(), Error> {
        match (&self.dress, span) {
            (Dress::Kept, Span::Each) => Ok(()),
            (Dress::Kept, Span::Whole) | (Dress::Each(_), _) => {
                self.connection.execute(sqlx::raw_sql(sql)).await.map(drop)
            }
        }
    }

    /// Names the lane that the session serves.
    pub(crate) async fn name(&mut self, lane: LaneId) -> Result<(), Fault> {
        self.dress.name(&mut self.connection, lane).await
    }

    /// Begins a unit and raises its lane's fence; the fence's row.
    pub(crate) async fn raise(&mut self, replans: bool) -> Result<Option<PgRow>, Error> {
        let raise = sqlx::raw_sql(sqlx::AssertSqlSafe(self.dress.raise(replans)));
        let rows = self.connection.fetch_all(raise).await.map_err(no_primary)?;
        // Behind rows of settings.
        Ok(rows
            .into_iter()
            .find(|row| sqlx::Row::try_column(row, "unit").is_ok()))
    }

    /// Checks the fence and commits the unit, in one request: the COMMIT runs only if the check passed.
    pub(crate) async fn hold_and_commit(&mut self) -> Result<(), Error> {
        let commit = sqlx::raw_sql(self.dress.hold_and_commit());
        self.connection.execute(commit).await.map(drop)
    }

    /// Lends the transaction to a handler.
    pub(crate) fn lend<'t>(&'t mut self, watch: &'t mut Watch) -> Tx<'t, Postgres> {
        let tx = Tx::new(&mut self.connection, watch);
        match self.dress {
            Dress::Kept => tx,
            Dress::Each(_) => tx.nameless(),
        }
    }

    /// Says goodbye, so that the server's log has no lost connection. Of no consequence.
    pub(crate) async fn close(self) {
        close(self.connection).await;
    }
}

/// Says goodbye. Of no consequence.
pub(crate) async fn close(connection: PgConnection) {
    let _ = tokio::time::timeout(Duration::from_millis(500), connection.close()).await;
}

type Step = Either<PgQueryResult, PgRow>;

impl<'c> Executor<'c> for &'c mut Session {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Step, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let query = Apart::of(query, self.dress.names());
        self.connection.fetch_many(query)
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let query = Apart::of(query, self.dress.names());
        self.connection.fetch_optional(query)
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'c: 'e,
    {
        self.connection.prepare_with(sql, parameters)
    }

    // Required whenever some crate of the build enables sqlx's `macros` (TRAPS T63).
    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<sqlx::Describe<Postgres>, Error>>
    where
        'c: 'e,
    {
        self.connection.describe(sql)
    }
}

/// An error of a transaction that could not begin. A pooler may lead to a standby meanwhile, which refuses one that
/// writes (0A000): for the ledger the primary is away.
fn no_primary(error: Error) -> Error {
    if has_code(&error, "0A000") {
        let told = format!(
            "{error}; the ledger needs the primary: has the pooler been pointed at a standby? (A migration of `semel_fence` does \
             this once, too.)"
        );
        Error::Io(std::io::Error::other(told))
    } else {
        error
    }
}

/// Where the options lead, for messages: host, database and user but never the password.
fn place(driver: &PgConnectOptions) -> String {
    format!(
        "PostgreSQL at {}:{}, database `{}`, as user `{}`",
        driver.get_host(),
        driver.get_port(),
        driver
            .get_database()
            .unwrap_or_else(|| driver.get_username()),
        driver.get_username(),
    )
}

/// Opens a session to the primary.
///
/// # Errors
/// `Down` when it cannot be had, with host, database and user but never the password; `Stop` when the URL is
/// wrong.
pub(crate) async fn open(options: &Options, purpose: Purpose) -> Result<Session, Fault> {
    let driver = options.parse()?;
    let setting_up = async {
        let mut connection = driver.connect().await?;
        let (dress, standby) = Dress::new(&mut connection, options, purpose).await?;
        Ok((Session { connection, dress }, standby))
    };
    match reach(options, &driver, setting_up).await? {
        (_, true) if purpose != Purpose::Read => Err(Fault::down(format!(
            "{} is a standby; the ledger needs the primary: connect to it, or promote this one",
            place(&driver)
        ))),
        (session, _) => Ok(session),
    }
}

/// Does what connects, and what comes before anything else, in the time that connecting may take.
///
/// # Errors
/// As [`open`].
pub(crate) async fn reach<T>(
    options: &Options,
    driver: &PgConnectOptions,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Fault> {
    let limit = options.connect_timeout_ms;
    match tokio::time::timeout(Duration::from_millis(limit), call).await {
        Err(_) => Err(Fault::down(format!(
            "{} did not answer within {limit} ms; is it reachable?",
            place(driver)
        ))),
        Ok(Err(error)) => Err(refused(&place(driver), &error)),
        Ok(Ok(reached)) => Ok(reached),
    }
}

/// A connection that was refused. What is wrong with the settings looks like an outage too: the operator may be
/// about to mend it, and nothing is lost by waiting.
fn refused(place: &str, error: &sqlx::Error) -> Fault {
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    let advice = match code.as_deref() {
        Some("28P01" | "28000") => "check the user and password",
        Some("3D000") => "create the database or correct its name",
        Some("53300") => "raise max_connections or run fewer lanes",
        Some("57P03") => "it is starting or stopping",
        _ => "is it running and reachable?",
    };
    let class = if classify(error) == Class::Busy {
        Class::Busy
    } else {
        Class::Down
    };
    Fault::new(
        class,
        format!("cannot connect to {place}: {error}; {advice}"),
    )
}

/// Runs a call that owns its connection, and gives the connection up when it takes too long.
pub(crate) async fn within<T>(
    limit_ms: u64,
    what: &str,
    call: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(Duration::from_millis(limit_ms), call).await {
        Ok(result) => result,
        Err(_) => Err(Fault::down(format!(
            "{what} took longer than {limit_ms} ms; its connection was given up"
        ))),
    }
}

/// Runs a text of several statements.
pub(crate) async fn script(session: &mut Session, sql: &'static str) -> Result<(), Fault> {
    sqlx::raw_sql(sql)
        .execute(session)
        .await
        .map(drop)
        .map_err(fault)
}
