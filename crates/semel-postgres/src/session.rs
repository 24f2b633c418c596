//! One connection, set up: what it may wait for, where its tables are, and that it leads to a primary. No pool:
//! a session has one owner, and is thrown away after any fault.

use std::future::Future;
use std::time::Duration;

use semel_core::{Class, Fault};
use sqlx::{ConnectOptions, Connection, PgConnection, Row};

use crate::fault::{classify, fault};
use crate::options::{Options, quoted};
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

/// Opens a session to the primary.
///
/// # Errors
/// `Down` when it cannot be had, with host, database and user but never the password; `Stop` when the URL is
/// wrong.
pub(crate) async fn open(options: &Options, purpose: Purpose) -> Result<PgConnection, Fault> {
    let driver = options.parse()?;
    let place = format!(
        "PostgreSQL at {}:{}, database `{}`, as user `{}`",
        driver.get_host(),
        driver.get_port(),
        driver
            .get_database()
            .unwrap_or_else(|| driver.get_username()),
        driver.get_username(),
    );
    let limit = options.connect_timeout_ms;
    let setting_up = async {
        let mut connection = driver.connect().await?;
        let standby = set_up(&mut connection, options, purpose).await?;
        Ok::<_, sqlx::Error>((connection, standby))
    };
    let connected = tokio::time::timeout(Duration::from_millis(limit), setting_up).await;
    match connected {
        Err(_) => Err(Fault::down(format!(
            "{place} did not answer within {limit} ms; is it reachable?"
        ))),
        Ok(Err(error)) => Err(refused(&place, &error)),
        Ok(Ok((_, true))) if purpose != Purpose::Read => Err(Fault::down(format!(
            "{place} is a standby; the ledger needs the primary: connect to it, or promote this one"
        ))),
        Ok(Ok((connection, _))) => Ok(connection),
    }
}

async fn set_up(
    connection: &mut PgConnection,
    options: &Options,
    purpose: Purpose,
) -> Result<bool, sqlx::Error> {
    let (statement_ms, lock_ms, idle_ms) = match purpose {
        Purpose::Work => (
            options.statement_timeout_ms,
            options.lock_timeout_ms,
            options.idle_timeout_ms,
        ),
        Purpose::Resolve => (
            options.statement_timeout_ms,
            options.resolve_wait_ms,
            options.idle_timeout_ms,
        ),
        Purpose::Read => (0, options.lock_timeout_ms, options.idle_timeout_ms),
        Purpose::Migrate => (0, 0, 0),
    };
    let read_only = if purpose == Purpose::Read {
        "on"
    } else {
        "off"
    };
    let row = sqlx::query(sql!("session"))
        .persistent(false)
        .bind(quoted(&options.schema))
        .bind(statement_ms.to_string())
        .bind(lock_ms.to_string())
        .bind(idle_ms.to_string())
        .bind(read_only)
        .fetch_one(connection)
        .await?;
    row.try_get("standby")
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

/// Says goodbye, so that the server's log has no lost connection. Of no consequence.
pub(crate) async fn close(connection: PgConnection) {
    let _ = tokio::time::timeout(Duration::from_millis(500), connection.close()).await;
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
pub(crate) async fn script(connection: &mut PgConnection, sql: &'static str) -> Result<(), Fault> {
    sqlx::raw_sql(sql)
        .execute(connection)
        .await
        .map(drop)
        .map_err(fault)
}
