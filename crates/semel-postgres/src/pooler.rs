//! Is there a pooler in between that lends one session of the server to many clients, a transaction at a time
//! (TRAPS T22)? What a session is told would then be told to somebody else's.

use std::fmt;

use semel_core::Fault;
use sqlx::{ConnectOptions, Error, PgConnection, Row};

use crate::options::{Options, Pooler};
use crate::session::{close, reach};
use crate::sql;

/// The error of a ledger that was opened behind a pooler which its options do not tell of. It is refused before
/// anything is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownPooler;

impl fmt::Display for UnknownPooler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a pooler is in between that lends one session of the server to many clients (PgBouncer's `pool_mode = transaction`): \
             settings and prepared statements would be somebody else's a moment later. Set `pooler = \"transaction\"` beside \
             the ledger's URL, give the pooler `pool_mode = session`, or connect to the server itself",
        )
    }
}

impl std::error::Error for UnknownPooler {}

/// Refuses to work behind a pooler that the options do not know of.
pub(crate) async fn refuse_unknown(options: &Options) -> Result<(), Fault> {
    match options.pooler {
        Pooler::None if lends(options).await? => Err(Fault::refused(UnknownPooler)),
        Pooler::None | Pooler::Transaction => Ok(()),
    }
}

/// Whether one session of the server serves two of our connections, or two of it serve one. Nothing is left behind.
async fn lends(options: &Options) -> Result<bool, Fault> {
    let driver = options.parse()?;
    let looking = async {
        let mut one = driver.connect().await?;
        // A pooler that takes turns gives the second request to another session.
        let first = backend(&mut one).await?;
        let moved = first != backend(&mut one).await?;
        let mut two = driver.connect().await?;
        let lends = moved || shared(&mut one, &mut two, first).await?;
        close(one).await;
        close(two).await;
        Ok(lends)
    };
    reach(options, &driver, looking).await
}

/// Whether a second connection keeps the first one's session for itself: it gets the one that was free last, or it has
/// the only one, and the first has to do with another.
async fn shared(one: &mut PgConnection, two: &mut PgConnection, first: i32) -> Result<bool, Error> {
    sqlx::raw_sql(sql!("begin_read")).execute(&mut *two).await?;
    // Not asked of the first if it would wait for the second's.
    let shared = backend(two).await? == first || backend(one).await? != first;
    sqlx::raw_sql("ROLLBACK").execute(two).await?;
    Ok(shared)
}

/// The server's process, by the simple protocol, whose requests are whole in any pooler.
async fn backend(connection: &mut PgConnection) -> Result<i32, Error> {
    let row = sqlx::raw_sql(sql!("backend")).fetch_one(connection).await?;
    row.try_get(0)
}
