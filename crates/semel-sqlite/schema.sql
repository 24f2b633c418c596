-- The whole schema, as the migrations leave it: the contract with other languages. A test keeps the two equal.

CREATE TABLE semel_schema (
    part TEXT NOT NULL,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    min_binary INTEGER NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (part, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE semel_consumer (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    handler TEXT NOT NULL,
    rules BLOB NOT NULL CHECK (length(rules) = 16),
    created INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT;

CREATE TABLE semel_source (
    consumer INTEGER NOT NULL REFERENCES semel_consumer,
    id INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (consumer, id),
    UNIQUE (consumer, name)
) STRICT, WITHOUT ROWID;

-- One row for each key that is held. The unique key is (consumer, key) and nothing else (TRAPS T20).
CREATE TABLE semel_ledger (
    consumer INTEGER NOT NULL,
    key BLOB NOT NULL CHECK (length(key) = 16),
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 16),
    scheme INTEGER NOT NULL,
    field_sums BLOB NOT NULL,
    outcome INTEGER NOT NULL,
    source INTEGER NOT NULL,
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    code TEXT,
    reply BLOB,
    PRIMARY KEY (consumer, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE semel_sighting (
    consumer INTEGER NOT NULL,
    key BLOB NOT NULL CHECK (length(key) = 16),
    source INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    count INTEGER NOT NULL,
    first_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    partition TEXT NOT NULL,
    position INTEGER,
    PRIMARY KEY (consumer, key, source, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE semel_position (
    consumer INTEGER NOT NULL,
    source INTEGER NOT NULL,
    partition TEXT NOT NULL,
    lane INTEGER NOT NULL,
    next INTEGER NOT NULL,
    mark BLOB NOT NULL,
    PRIMARY KEY (consumer, source, partition, lane)
) STRICT, WITHOUT ROWID;

CREATE TABLE semel_parked (
    consumer INTEGER NOT NULL,
    key BLOB NOT NULL CHECK (length(key) = 16),
    id TEXT NOT NULL,
    awaiting TEXT NOT NULL,
    awaiting_key BLOB NOT NULL CHECK (length(awaiting_key) = 16),
    source INTEGER NOT NULL,
    partition TEXT NOT NULL,
    position INTEGER,
    timestamp_ms INTEGER,
    attempts INTEGER NOT NULL,
    parked_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    due_at INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    headers BLOB NOT NULL,
    message_key BLOB,
    payload BLOB,
    PRIMARY KEY (consumer, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX semel_parked_awaiting ON semel_parked (consumer, awaiting_key);
CREATE INDEX semel_parked_due ON semel_parked (consumer, due_at);
CREATE INDEX semel_parked_deadline ON semel_parked (consumer, deadline);

CREATE TABLE semel_dead (
    consumer INTEGER NOT NULL,
    letter BLOB NOT NULL CHECK (length(letter) = 16),
    key BLOB CHECK (length(key) = 16),
    id TEXT,
    code TEXT NOT NULL,
    detail TEXT NOT NULL,
    field TEXT,
    hash BLOB NOT NULL CHECK (length(hash) = 16),
    attempts INTEGER NOT NULL,
    count INTEGER NOT NULL,
    source INTEGER NOT NULL,
    partition TEXT NOT NULL,
    position INTEGER,
    timestamp_ms INTEGER,
    size INTEGER NOT NULL,
    first_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    headers BLOB NOT NULL,
    message_key BLOB,
    payload BLOB,
    PRIMARY KEY (consumer, letter)
) STRICT, WITHOUT ROWID;
CREATE INDEX semel_dead_key ON semel_dead (consumer, key);

CREATE TABLE semel_attempt (
    consumer INTEGER NOT NULL,
    key BLOB NOT NULL CHECK (length(key) = 16),
    attempts INTEGER NOT NULL,
    PRIMARY KEY (consumer, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE semel_outbox (
    consumer INTEGER NOT NULL,
    key BLOB NOT NULL CHECK (length(key) = 16),
    lane INTEGER NOT NULL,
    sink TEXT NOT NULL,
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    headers BLOB NOT NULL,
    message_key BLOB,
    payload BLOB,
    PRIMARY KEY (consumer, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE semel_fence (
    consumer INTEGER NOT NULL,
    instance BLOB NOT NULL CHECK (length(instance) = 16),
    lane INTEGER NOT NULL,
    unit INTEGER NOT NULL,
    seen_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (consumer, instance, lane)
) STRICT, WITHOUT ROWID;

-- What operators did, written before it is done: nothing happens without a trace.
CREATE TABLE semel_act (
    id BLOB NOT NULL PRIMARY KEY DEFAULT (randomblob(16)),
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    consumer INTEGER NOT NULL,
    act TEXT NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Numbers are never used twice (AUTOINCREMENT): a message's number is its position. The index on `queue` holds
-- the number too, so a queue is read in the order of its numbers.
CREATE TABLE semel_queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    enqueued_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    visible_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    lease BLOB CHECK (length(lease) = 16),
    attempt INTEGER NOT NULL DEFAULT 0,
    headers BLOB NOT NULL,
    message_key BLOB,
    payload BLOB
) STRICT;
CREATE INDEX semel_queue_order ON semel_queue (queue);
