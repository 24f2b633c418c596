//! How a session is dressed: what it may wait for, where its tables are, how durable its commits are, and whose lane
//! it serves. The one place that knows what a pooler changes about it (TRAPS T22).
//!
//! A session of one's own is dressed once. Behind a pooler that lends one session of the server to many clients for a
//! transaction each, nothing may be left in it: every transaction is dressed as it begins, in the request that begins
//! it, and no statement gets a name.

use semel_core::Fault;
use semel_core::ledger::LaneId;
use semel_sql::Names;
use sqlx::types::Uuid;
use sqlx::{PgConnection, Row};

use crate::fault::{fault, has_code};
use crate::options::{Options, Pooler, quoted};
use crate::pooler::UnknownPooler;
use crate::session::Purpose;
use crate::sql;

/// Prepares the fence's statements, so that they travel with BEGIN and COMMIT without a parse.
const PREPARE: &str = concat!(
    "PREPARE semel_raise AS\n",
    sql!("fence_raise"),
    ";\nPREPARE semel_hold AS\n",
    sql!("fence_hold"),
);
/// Ends a unit as `unit_commit.sql` does, where nothing is prepared.
const HOLD_AND_COMMIT: &str = concat!(sql!("fence_hold"), ";\nCOMMIT");

/// What a session wears.
#[derive(Debug, Clone)]
pub(crate) enum Dress {
    /// The session's own, put on once.
    Kept,
    /// The text that begins a transaction and dresses it.
    Each(String),
}

impl Dress {
    /// Dresses a new connection. Whether it leads to a standby.
    pub(crate) async fn new(
        connection: &mut PgConnection,
        options: &Options,
        purpose: Purpose,
    ) -> Result<(Self, bool), sqlx::Error> {
        let [path, statement, lock, idle, read_only] = settings(options, purpose);
        match options.pooler {
            Pooler::None => {
                let row = sqlx::query(sql!("session"))
                    .persistent(false)
                    .bind(path)
                    .bind(statement)
                    .bind(lock)
                    .bind(idle)
                    .bind(read_only)
                    .bind(false)
                    .fetch_one(connection)
                    .await?;
                Ok((Self::Kept, row.try_get("standby")?))
            }
            Pooler::Transaction => {
                let dress = written(
                    sql!("session"),
                    &[&path, &statement, &lock, &idle, &read_only, "true"],
                );
                // Only a reader's transaction can begin on a standby, and it is to be told as one.
                let look = format!("{};\n{dress};\nCOMMIT", sql!("begin_read"));
                let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(look))
                    .fetch_all(connection)
                    .await?;
                let standby = rows.first().map(|row| row.try_get("standby")).transpose()?;
                let begin = match purpose {
                    Purpose::Read => sql!("begin_read"),
                    Purpose::Work | Purpose::Resolve | Purpose::Migrate => sql!("begin"),
                };
                let dress = Self::Each(format!("{begin};\n{dress}"));
                Ok((dress, standby.unwrap_or_default()))
            }
        }
    }

    /// Names the lane that the session is for.
    pub(crate) async fn name(
        &mut self,
        connection: &mut PgConnection,
        lane: LaneId,
    ) -> Result<(), Fault> {
        let consumer = lane.consumer.0.to_string();
        let instance = Uuid::from_bytes(lane.instance.0).to_string();
        let number = lane.lane.to_string();
        match self {
            Self::Kept => {
                sqlx::query(sql!("lane"))
                    .persistent(false)
                    .bind(consumer)
                    .bind(instance)
                    .bind(number)
                    .bind(false)
                    .execute(&mut *connection)
                    .await
                    .map_err(fault)?;
                sqlx::raw_sql(PREPARE)
                    .execute(connection)
                    .await
                    .map_err(prepared)?;
            }
            Self::Each(dress) => {
                let lane = written(sql!("lane"), &[&consumer, &instance, &number, "true"]);
                dress.push_str(";\n");
                dress.push_str(&lane);
            }
        }
        Ok(())
    }

    /// The request that begins a unit and raises its fence.
    pub(crate) fn raise(&self, replans: bool) -> String {
        match self {
            Self::Kept if replans => sql!("unit_begin_replan").to_owned(),
            Self::Kept => sql!("unit_begin").to_owned(),
            // What is parsed anew each time has no plans to forget.
            Self::Each(dress) => format!("{dress};\n{}", sql!("fence_raise")),
        }
    }

    /// The request that ends a unit.
    pub(crate) const fn hold_and_commit(&self) -> &'static str {
        match self {
            Self::Kept => sql!("unit_commit"),
            Self::Each(_) => HOLD_AND_COMMIT,
        }
    }

    pub(crate) const fn names(&self) -> Names {
        match self {
            Self::Kept => Names::Kept,
            Self::Each(_) => Names::None,
        }
    }
}

/// Why the fence's statements could not be prepared. A session of one's own has none of these names yet.
fn prepared(error: sqlx::Error) -> Fault {
    if has_code(&error, "42P05") {
        Fault::refused(UnknownPooler)
    } else {
        fault(error)
    }
}

/// The arguments of `session.sql`, but for the last.
fn settings(options: &Options, purpose: Purpose) -> [String; 5] {
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
    [
        quoted(&options.schema),
        statement_ms.to_string(),
        lock_ms.to_string(),
        idle_ms.to_string(),
        read_only.to_owned(),
    ]
}

/// A statement with its arguments written into it, for a request of several statements, which takes none. For the
/// settings of a session alone: they are the config's and Semel's own, never a message's. The highest numbers go first:
/// only the first argument, a schema's name, could hold a `$`.
fn written(sql: &str, arguments: &[&str]) -> String {
    let mut text = sql.to_owned();
    for (place, argument) in arguments.iter().enumerate().rev() {
        text = text.replace(&format!("${}", place + 1), &literal(argument));
    }
    text
}

/// A text as a literal that means the same whatever `standard_conforming_strings` is.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_written_as_literals_and_never_twice() {
        assert_eq!(
            written("f($1, $2)", &["a'b\\c$2", "x"]),
            r"f(E'a''b\\c$2', E'x')"
        );
    }
}
