//! What running migrations takes and tells, the same for every dialect.

/// Tables of a handler crate that live beside Semel's own and are migrated with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extension {
    /// Its part in `semel_schema`, such as `wallet`. `semel` is taken.
    pub name: &'static str,
    /// Its forward-only migrations: file name and SQL, in order. One that was applied never changes.
    pub migrations: &'static [(&'static str, &'static str)],
}

/// What a migration did, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// Version of Semel's own tables before; 0 when there were none.
    pub from: i32,
    /// Version of Semel's own tables after.
    pub to: i32,
    /// The migrations applied, as [`migration_name`] spells them.
    pub applied: Vec<String>,
}

/// The part of Semel's own tables.
pub const OWN_PART: &str = "semel";

/// A migration as people and `semel_schema` see it: `0001_ledger` for Semel's own, `wallet/0001_wallet` for those of
/// a handler. The ending of its file is no part of its name.
#[must_use]
pub fn migration_name(part: &str, file: &str) -> String {
    let name = migration_stem(file);
    if part == OWN_PART {
        name.to_owned()
    } else {
        format!("{part}/{name}")
    }
}

/// A migration within its part: the name of its file without the ending.
#[must_use]
pub fn migration_stem(file: &str) -> &str {
    file.strip_suffix(".sql").unwrap_or(file)
}
