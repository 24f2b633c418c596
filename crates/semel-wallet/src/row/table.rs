//! The tables as the staged engine sees them. The columns are those of the migrations; a test compares.

use semel_core::rows::{Change, Column, Table, Type};

/// Index of `wallet_account` in [`TABLES`].
pub const ACCOUNT: usize = 0;
/// Index of `wallet_operation`.
pub const OPERATION: usize = 1;
/// Index of `wallet_entry`.
pub const ENTRY: usize = 2;
/// Index of `wallet_hold`.
pub const HOLD: usize = 3;
/// Index of `wallet_bet`.
pub const BET: usize = 4;
/// Index of `wallet_round`.
pub const ROUND: usize = 5;

/// The tables, in the order in which they are locked and written.
pub const TABLES: &[&Table] = &[
    &ACCOUNT_TABLE,
    &OPERATION_TABLE,
    &ENTRY_TABLE,
    &HOLD_TABLE,
    &BET_TABLE,
    &ROUND_TABLE,
];

const fn fixed(name: &'static str, kind: Type) -> Column {
    Column {
        name,
        kind,
        change: Change::Fixed,
    }
}

const fn set(name: &'static str, kind: Type) -> Column {
    Column {
        name,
        kind,
        change: Change::Set,
    }
}

const fn counter(name: &'static str, kind: Type) -> Column {
    Column {
        name,
        kind,
        change: Change::Counter,
    }
}

static ACCOUNT_TABLE: Table = Table {
    name: "wallet_account",
    columns: &[
        fixed("key", Type::Key),
        fixed("id", Type::Text),
        fixed("asset", Type::Text),
        fixed("kind", Type::Text),
        fixed("limit_kind", Type::Text),
        set("status", Type::Text),
        counter("posted", Type::Amount),
        counter("pending", Type::Amount),
        counter("version", Type::Int),
    ],
};

static OPERATION_TABLE: Table = Table {
    name: "wallet_operation",
    columns: &[
        fixed("key", Type::Key),
        fixed("id", Type::Text),
        fixed("op", Type::Text),
        fixed("leg", Type::Int),
        fixed("debit", Type::Key),
        fixed("credit", Type::Key),
        fixed("amount", Type::Amount),
        fixed("asset", Type::Text),
        fixed("reference", Type::Key),
        fixed("bet", Type::Key),
        fixed("note", Type::Text),
        fixed("account", Type::Key),
        fixed("balance", Type::Amount),
        fixed("available", Type::Amount),
        fixed("version", Type::Int),
        fixed("tombstoned", Type::Int),
        set("refunded", Type::Amount),
        set("reversed_by", Type::Key),
    ],
};

static ENTRY_TABLE: Table = Table {
    name: "wallet_entry",
    columns: &[
        fixed("account", Type::Key),
        fixed("version", Type::Int),
        fixed("operation", Type::Key),
        fixed("amount", Type::Amount),
        fixed("balance_after", Type::Amount),
    ],
};

static HOLD_TABLE: Table = Table {
    name: "wallet_hold",
    columns: &[
        fixed("key", Type::Key),
        fixed("id", Type::Text),
        fixed("debit", Type::Key),
        fixed("credit", Type::Key),
        fixed("asset", Type::Text),
        fixed("amount", Type::Amount),
        fixed("expires_at", Type::Time),
        set("captured", Type::Amount),
        set("remaining", Type::Amount),
        set("status", Type::Text),
    ],
};

static BET_TABLE: Table = Table {
    name: "wallet_bet",
    columns: &[
        fixed("key", Type::Key),
        fixed("round", Type::Key),
        fixed("account", Type::Key),
        fixed("house", Type::Key),
        fixed("amount", Type::Amount),
        fixed("earlier", Type::Bytes),
        fixed("chain", Type::Key),
        set("status", Type::Text),
        set("ended_by", Type::Key),
    ],
};

static ROUND_TABLE: Table = Table {
    name: "wallet_round",
    columns: &[
        fixed("key", Type::Key),
        fixed("id", Type::Text),
        fixed("round", Type::Key),
        fixed("account", Type::Key),
        fixed("game", Type::Text),
        set("status", Type::Text),
        set("staked", Type::Amount),
        set("paid", Type::Amount),
        set("recent", Type::Bytes),
        set("chain", Type::Key),
        set("ended_by", Type::Key),
    ],
};
