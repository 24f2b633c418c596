//! What an error of the driver or the server means, by SQLSTATE alone: message texts come in the server's
//! language (TRAPS T26), and only our own arbiter may ever mean Seen (TRAPS T25), which no error does.

use semel_core::{Class, Fault};
use semel_sql::Told;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// The class of an error.
///
/// | SQLSTATE | class | why |
/// |---|---|---|
/// | 40…, 55P03, 57014, 25P03, 25P04 | `Busy` | conflict, deadlock, a timeout: the unit runs again |
/// | 23505, 23P01 | `Retry`, a clash | another unit's row: the next run sees it. The kinds of handler that can try again inside the unit do; met twice, it is the message's poison |
/// | 0A000, 26000, 55…, XX000 | `Retry` | the schema moved under a plan, a statement is gone: the next run sees it, and if it never helps, the attempts run out |
/// | 08…, 25006, 28…, 3D000, 53…, 57P…, 58… | `Down` | away, full, starting, stopping, a standby |
/// | 42501, 42P01, 42P10, 42703, 42883, 3F000, XX001, XX002 | `Stop` | a grant, a table or a migration is missing: every message would die of it |
/// | the rest: 22…, 23…, 42…, P0… | `Poison` | this message breaks the statement |
#[must_use]
pub fn classify(error: &sqlx::Error) -> Class {
    match error {
        sqlx::Error::Database(error) => error.code().map_or(Class::Poison, |code| of_code(&code)),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::BeginFailed
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => Class::Down,
        _ => Class::Poison,
    }
}

fn of_code(code: &str) -> Class {
    match code {
        "55P03" | "57014" | "25P03" | "25P04" => Class::Busy,
        "23505" | "23P01" | "0A000" | "26000" | "XX000" => Class::Retry,
        "25006" | "3D000" => Class::Down,
        "42501" | "42P01" | "42P10" | "42703" | "42883" | "3F000" | "XX001" | "XX002" => {
            Class::Stop
        }
        _ => match code.get(..2) {
            Some("40") => Class::Busy,
            Some("55") => Class::Retry,
            Some("08" | "28" | "53" | "57" | "58") => Class::Down,
            _ => Class::Poison,
        },
    }
}

/// The fault of an error of our own statements.
pub(crate) fn fault(error: sqlx::Error) -> Fault {
    // Damage is for somebody to look at; a missing grant or table endangers nothing.
    let damage = ["XX001", "XX002"].iter().any(|code| has_code(&error, code));
    match classify(&error) {
        Class::Stop if !damage => Fault::refused(Told(error)),
        Class::Retry if is_clash(&error) => Fault::clash(Told(error)),
        class => Fault::new(class, Told(error)),
    }
}

/// A fault of Semel's own statements: what would be a message's poison in the user's is a reason to stop here, and a
/// statement that the session lost, or whose plan is too old, asks for another session and counts against no message.
/// One that only says that a statement before it failed (25P02) is left to who ran that.
pub(crate) fn own(fault: Fault) -> Fault {
    let has = |code| {
        let told = fault.downcast_ref::<Told>();
        told.is_some_and(|error| has_code(&error.0, code))
    };
    let (aborted, stale) = (has("25P02"), has("26000") || has("0A000"));
    match fault.class {
        Class::Poison | Class::Unclassified if !aborted => Fault::stop(fault.error),
        Class::Retry if stale => Fault::down(fault.error),
        _ => fault,
    }
}

/// Whether a lock could not be had in time.
pub(crate) fn is_lock_timeout(error: &sqlx::Error) -> bool {
    has_code(error, "55P03")
}

/// Whether the check before a COMMIT found that the fence is not this transaction's: it asks for a setting that
/// does not exist, see `fence_hold.sql`.
pub(crate) fn is_fence_lost(error: &sqlx::Error) -> bool {
    has_code(error, "42704")
}

/// Whether a row of a user's table is there already, by a unique or an exclusion constraint.
pub(crate) fn is_clash(error: &sqlx::Error) -> bool {
    has_code(error, "23505") || has_code(error, "23P01")
}

pub(crate) fn has_code(error: &sqlx::Error, code: &str) -> bool {
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|found| found == code)
}

/// Whether an error that answers a COMMIT proves that nothing was committed. Only a plain error of the server
/// does: it was raised before the commit record was written. A session that is ended, a server that stops or
/// a socket that closes proves nothing (TRAPS T65).
pub(crate) fn proves_rollback(error: &sqlx::Error) -> bool {
    let Some(error) = error
        .as_database_error()
        .and_then(|e| e.try_downcast_ref::<PgDatabaseError>())
    else {
        return false;
    };
    // 40003: "statement completion unknown".
    let doubtful =
        error.code() == "40003" || matches!(error.code().get(..2), Some("08" | "57" | "58" | "XX"));
    matches!(error.severity(), PgSeverity::Error) && !doubtful
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_busy_outages_are_down_and_bad_data_is_poison() {
        for code in ["40001", "40P01", "40003", "55P03", "57014", "25P03"] {
            assert_eq!(of_code(code), Class::Busy, "{code}");
        }
        for code in [
            "53100", "53200", "53300", "57P01", "57P02", "57P03", "57P05", "08006", "58030",
            "25006", "28P01",
        ] {
            assert_eq!(of_code(code), Class::Down, "{code}");
        }
        for code in [
            "23502", "23503", "23514", "22003", "22021", "22P05", "54000", "42601", "P0001",
            "25P02", "", "2",
        ] {
            assert_eq!(of_code(code), Class::Poison, "{code}");
        }
        for code in ["23505", "23P01", "0A000", "26000"] {
            assert_eq!(of_code(code), Class::Retry, "{code}");
        }
        for code in ["42501", "42P01", "42703"] {
            assert_eq!(of_code(code), Class::Stop, "{code}");
        }
    }

    #[test]
    fn a_cut_socket_is_down_and_proves_nothing() {
        let cut = sqlx::Error::Io(std::io::ErrorKind::UnexpectedEof.into());
        assert_eq!(classify(&cut), Class::Down);
        assert!(!proves_rollback(&cut));
    }
}
