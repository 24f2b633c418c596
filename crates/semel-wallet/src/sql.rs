//! The statements, one file each, per dialect. The same names and columns in both.

/// The SQL of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
}

/// All statements of a dialect.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) account: &'static str,
    pub(crate) asset_note: &'static str,
    pub(crate) assets: &'static str,
    pub(crate) audit_accounts: &'static str,
    pub(crate) audit_bets: &'static str,
    pub(crate) audit_counts: &'static str,
    pub(crate) audit_effects: &'static str,
    pub(crate) audit_holds: &'static str,
    pub(crate) audit_keys: &'static str,
    pub(crate) audit_operations: &'static str,
    pub(crate) audit_references: &'static str,
    pub(crate) audit_opened: &'static str,
    pub(crate) audit_authorized: &'static str,
    pub(crate) audit_placed: &'static str,
    pub(crate) audit_lists: &'static str,
    pub(crate) audit_ends: &'static str,
    pub(crate) audit_paid: &'static str,
    pub(crate) audit_pending: &'static str,
    pub(crate) audit_refunds: &'static str,
    pub(crate) audit_reversals: &'static str,
    pub(crate) audit_staked: &'static str,
    pub(crate) audit_strays: &'static str,
    pub(crate) bets: &'static str,
    pub(crate) expired: &'static str,
    pub(crate) legs: &'static str,
    pub(crate) operation: &'static str,
    pub(crate) rounds: &'static str,
    pub(crate) statement: &'static str,
    pub(crate) taken: &'static str,
    pub(crate) wins: &'static str,
}

macro_rules! statements {
    ($dialect:literal) => {
        Statements {
            account: include_str!(concat!("sql/", $dialect, "/account.sql")),
            asset_note: include_str!(concat!("sql/", $dialect, "/asset_note.sql")),
            assets: include_str!(concat!("sql/", $dialect, "/assets.sql")),
            audit_accounts: include_str!(concat!("sql/", $dialect, "/audit_accounts.sql")),
            audit_bets: include_str!(concat!("sql/", $dialect, "/audit_bets.sql")),
            audit_counts: include_str!(concat!("sql/", $dialect, "/audit_counts.sql")),
            audit_effects: include_str!(concat!("sql/", $dialect, "/audit_effects.sql")),
            audit_holds: include_str!(concat!("sql/", $dialect, "/audit_holds.sql")),
            audit_keys: include_str!(concat!("sql/", $dialect, "/audit_keys.sql")),
            audit_operations: include_str!(concat!("sql/", $dialect, "/audit_operations.sql")),
            audit_references: include_str!(concat!("sql/", $dialect, "/audit_references.sql")),
            audit_opened: include_str!(concat!("sql/", $dialect, "/audit_opened.sql")),
            audit_authorized: include_str!(concat!("sql/", $dialect, "/audit_authorized.sql")),
            audit_placed: include_str!(concat!("sql/", $dialect, "/audit_placed.sql")),
            audit_lists: include_str!(concat!("sql/", $dialect, "/audit_lists.sql")),
            audit_ends: include_str!(concat!("sql/", $dialect, "/audit_ends.sql")),
            audit_paid: include_str!(concat!("sql/", $dialect, "/audit_paid.sql")),
            audit_pending: include_str!(concat!("sql/", $dialect, "/audit_pending.sql")),
            audit_refunds: include_str!(concat!("sql/", $dialect, "/audit_refunds.sql")),
            audit_reversals: include_str!(concat!("sql/", $dialect, "/audit_reversals.sql")),
            audit_staked: include_str!(concat!("sql/", $dialect, "/audit_staked.sql")),
            audit_strays: include_str!(concat!("sql/", $dialect, "/audit_strays.sql")),
            bets: include_str!(concat!("sql/", $dialect, "/bets.sql")),
            expired: include_str!(concat!("sql/", $dialect, "/expired.sql")),
            legs: include_str!(concat!("sql/", $dialect, "/legs.sql")),
            operation: include_str!(concat!("sql/", $dialect, "/operation.sql")),
            rounds: include_str!(concat!("sql/", $dialect, "/rounds.sql")),
            statement: include_str!(concat!("sql/", $dialect, "/statement.sql")),
            taken: include_str!(concat!("sql/", $dialect, "/taken.sql")),
            wins: include_str!(concat!("sql/", $dialect, "/wins.sql")),
        }
    };
}

static POSTGRES: Statements = statements!("postgres");
static SQLITE: Statements = statements!("sqlite");

impl Dialect {
    pub(crate) const fn statements(self) -> &'static Statements {
        match self {
            Self::Postgres => &POSTGRES,
            Self::Sqlite => &SQLITE,
        }
    }
}
