//! The statements of the operators' commands, one file each and the same names in both dialects.

use crate::dialect::Dialect;

/// One dialect's statements.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) consumers: &'static str,
    pub(crate) ledger_row: &'static str,
    pub(crate) sightings: &'static str,
    pub(crate) parked_row: &'static str,
    pub(crate) parked_list: &'static str,
    pub(crate) dead_of_key: &'static str,
    pub(crate) dead_list: &'static str,
    pub(crate) dead_letter: &'static str,
    pub(crate) keys_of_id: &'static str,
    pub(crate) backlog: &'static str,
    pub(crate) queue_count: &'static str,
    pub(crate) lives: &'static str,
    pub(crate) sources: &'static str,
    pub(crate) server: &'static str,
    pub(crate) position_set: &'static str,
    pub(crate) act: &'static str,
    pub(crate) acts: &'static str,
}

macro_rules! statements {
    ($dialect:literal) => {
        Statements {
            consumers: include_str!(concat!("../sql/", $dialect, "/consumers.sql")),
            ledger_row: include_str!(concat!("../sql/", $dialect, "/ledger_row.sql")),
            sightings: include_str!(concat!("../sql/", $dialect, "/sightings.sql")),
            parked_row: include_str!(concat!("../sql/", $dialect, "/parked_row.sql")),
            parked_list: include_str!(concat!("../sql/", $dialect, "/parked_list.sql")),
            dead_of_key: include_str!(concat!("../sql/", $dialect, "/dead_of_key.sql")),
            dead_list: include_str!(concat!("../sql/", $dialect, "/dead_list.sql")),
            dead_letter: include_str!(concat!("../sql/", $dialect, "/dead_letter.sql")),
            keys_of_id: include_str!(concat!("../sql/", $dialect, "/keys_of_id.sql")),
            backlog: include_str!(concat!("../sql/", $dialect, "/backlog.sql")),
            queue_count: include_str!(concat!("../sql/", $dialect, "/queue_count.sql")),
            lives: include_str!(concat!("../sql/", $dialect, "/lives.sql")),
            sources: include_str!(concat!("../sql/", $dialect, "/sources.sql")),
            server: include_str!(concat!("../sql/", $dialect, "/server.sql")),
            position_set: include_str!(concat!("../sql/", $dialect, "/position_set.sql")),
            act: include_str!(concat!("../sql/", $dialect, "/act.sql")),
            acts: include_str!(concat!("../sql/", $dialect, "/acts.sql")),
        }
    };
}

static SQLITE: Statements = statements!("sqlite");
static POSTGRES: Statements = statements!("postgres");

impl Statements {
    pub(crate) fn of(dialect: Dialect) -> &'static Self {
        match dialect {
            Dialect::Sqlite => &SQLITE,
            Dialect::Postgres => &POSTGRES,
        }
    }
}
