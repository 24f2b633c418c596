-- One row for each migration that ran. The caller holds the write lock.
CREATE TABLE IF NOT EXISTS semel_schema (
    part TEXT NOT NULL,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    min_binary INTEGER NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (part, version)
) STRICT, WITHOUT ROWID
