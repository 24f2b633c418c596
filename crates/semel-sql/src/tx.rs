//! The open transaction, as a handler sees it: sqlx's `Executor`, and nothing that could end the
//! transaction.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::future::BoxFuture;
use futures_core::stream::{BoxStream, Stream};
use futures_util::{FutureExt, StreamExt, future, stream};

use sqlx::{Database, Either, Error, Execute, Executor, SqlStr};

use crate::apart::{Apart, Names};
use crate::watch::Watch;

/// The unit's open transaction, lent for one message.
///
/// `&mut tx` is an sqlx [`Executor`], so every query of sqlx runs on it. The first error of any statement
/// poisons it: later statements fail at once, and the unit cannot keep what this message did. Ending the
/// transaction is not possible through it, and keeping it beyond the call does not compile:
///
/// ```compile_fail
/// # use semel_core::{Answer, Fault, Message};
/// # use semel_sql::{PerMessage, Tx};
/// use std::sync::Mutex;
///
/// static KEPT: Mutex<Option<Tx<'static, sqlx::Sqlite>>> = Mutex::new(None);
///
/// async fn keep(tx: Tx<'_, sqlx::Sqlite>, _: Message) -> Result<Answer, Fault> {
///     *KEPT.lock().unwrap() = Some(tx);
///     Ok(Answer::applied())
/// }
/// ```
pub struct Tx<'t, DB: Database> {
    connection: &'t mut DB::Connection,
    watch: &'t mut Watch,
    names: Names,
}

impl<'t, DB: Database> Tx<'t, DB> {
    /// Called by units that lend their connection. Everything run through it is recorded in `watch`.
    pub const fn new(connection: &'t mut DB::Connection, watch: &'t mut Watch) -> Self {
        Self {
            connection,
            watch,
            names: Names::Kept,
        }
    }

    /// The same, and no statement leaves a name behind in the session: behind a pooler it is somebody else's a moment
    /// later (TRAPS T22). Such a `Tx` prepares nothing ahead.
    #[must_use]
    pub fn nameless(self) -> Self {
        Self {
            names: Names::None,
            ..self
        }
    }

    /// Whether a statement may be prepared ahead of its run.
    fn admit_ahead(&mut self, sql: &str) -> Result<(), Error> {
        match self.names {
            Names::Kept => self.watch.admit(sql),
            Names::None => self.watch.refuse(
                "a statement that is prepared ahead keeps a name in the session, which behind a pooler is soon somebody \
                 else's; run the query itself (TRAPS T22)",
            ),
        }
    }
}

impl<DB: Database> fmt::Debug for Tx<'_, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx")
            .field("database", &DB::NAME)
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}

type Step<DB> = Either<<DB as Database>::QueryResult, <DB as Database>::Row>;

impl<'c, 't, DB> Executor<'c> for &'c mut Tx<'t, DB>
where
    DB: Database,
    for<'x> &'x mut DB::Connection: Executor<'x, Database = DB>,
{
    type Database = DB;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Step<DB>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, DB>,
    {
        let query = Apart::<DB>::of(query, self.names);
        match self.watch.admit(query.text()) {
            Ok(()) => Watched::new(self.watch, self.connection.fetch_many(query)).boxed(),
            Err(error) => stream::once(future::ready(Err(error))).boxed(),
        }
    }

    fn fetch_optional<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxFuture<'e, Result<Option<DB::Row>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, DB>,
    {
        let query = Apart::<DB>::of(query, self.names);
        match self.watch.admit(query.text()) {
            Ok(()) => Watched::new(self.watch, self.connection.fetch_optional(query)).boxed(),
            Err(error) => future::ready(Err(error)).boxed(),
        }
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [DB::TypeInfo],
    ) -> BoxFuture<'e, Result<DB::Statement, Error>>
    where
        'c: 'e,
    {
        match self.admit_ahead(sql.as_str()) {
            Ok(()) => {
                Watched::new(self.watch, self.connection.prepare_with(sql, parameters)).boxed()
            }
            Err(error) => future::ready(Err(error)).boxed(),
        }
    }

    // Required whenever some crate of the build enables sqlx's `macros`, which the workspace always does
    // (TRAPS T63).
    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<sqlx::Describe<DB>, Error>>
    where
        'c: 'e,
    {
        match self.admit_ahead(sql.as_str()) {
            Ok(()) => Watched::new(self.watch, self.connection.describe(sql)).boxed(),
            Err(error) => future::ready(Err(error)).boxed(),
        }
    }
}

/// A statement under way. Its error is recorded, and so is its being dropped before it ended.
struct Watched<'e, S> {
    watch: &'e mut Watch,
    inner: S,
    under_way: bool,
}

impl<'e, S> Watched<'e, S> {
    const fn new(watch: &'e mut Watch, inner: S) -> Self {
        Self {
            watch,
            inner,
            under_way: false,
        }
    }
}

impl<T> Future for Watched<'_, BoxFuture<'_, Result<T, Error>>> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.under_way = true;
        let result = ready!(self.inner.poll_unpin(cx));
        self.under_way = false;
        if let Err(error) = &result {
            self.watch.record(error);
        }
        Poll::Ready(result)
    }
}

impl<T> Stream for Watched<'_, BoxStream<'_, Result<T, Error>>> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.under_way = true;
        let item = ready!(self.inner.poll_next_unpin(cx));
        match &item {
            None => self.under_way = false,
            Some(Err(error)) => {
                self.under_way = false;
                self.watch.record(error);
            }
            Some(Ok(_)) => {}
        }
        Poll::Ready(item)
    }
}

impl<S> Drop for Watched<'_, S> {
    fn drop(&mut self) {
        if self.under_way {
            self.watch.abandon();
        }
    }
}
