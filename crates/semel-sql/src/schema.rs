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
    /// The migrations applied, as `part/file`.
    pub applied: Vec<String>,
}
