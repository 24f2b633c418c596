-- The Book and the Rounds. Amounts are minor units of 128 bits, as decimal text: SQLite's integers have 64
-- bits and its sums are floats, so sums and deltas are made in Rust. Times are microseconds since 1970 UTC.

CREATE TABLE wallet_account (
    key BLOB NOT NULL CHECK (length(key) = 16) PRIMARY KEY,
    id TEXT NOT NULL,
    asset TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('cash', 'bonus', 'house', 'external')),
    limit_kind TEXT NOT NULL CHECK (limit_kind IN ('no_negative', 'none')),
    status TEXT NOT NULL CHECK (status IN ('active', 'frozen', 'closed')),
    posted TEXT NOT NULL,
    pending TEXT NOT NULL CHECK (pending NOT LIKE '-%'),
    version INTEGER NOT NULL,
    opened_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    CONSTRAINT wallet_account_limit CHECK (limit_kind = 'none' OR posted NOT LIKE '-%')
) STRICT, WITHOUT ROWID;

-- One row for each applied operation and for each further leg of a group.
CREATE TABLE wallet_operation (
    key BLOB NOT NULL CHECK (length(key) = 16) PRIMARY KEY,
    id TEXT NOT NULL,
    op TEXT NOT NULL,
    leg INTEGER NOT NULL,
    debit BLOB CHECK (length(debit) = 16),
    credit BLOB CHECK (length(credit) = 16),
    amount TEXT CHECK (amount NOT LIKE '-%'),
    asset TEXT,
    reference BLOB CHECK (length(reference) = 16),
    bet BLOB CHECK (length(bet) = 16),
    account BLOB CHECK (length(account) = 16),
    balance TEXT,
    available TEXT,
    version INTEGER,
    tombstoned INTEGER,
    refunded TEXT CHECK (refunded NOT LIKE '-%'),
    reversed_by BLOB CHECK (length(reversed_by) = 16),
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    note TEXT
) STRICT, WITHOUT ROWID;

-- The wins of a round, for `semel round`; other operations pay nothing for it.
CREATE INDEX wallet_operation_win ON wallet_operation (reference) WHERE op = 'win';

-- Insert-only. The version makes one sequence per account without gaps.
CREATE TABLE wallet_entry (
    account BLOB NOT NULL CHECK (length(account) = 16),
    version INTEGER NOT NULL CHECK (version > 0),
    operation BLOB NOT NULL CHECK (length(operation) = 16),
    amount TEXT NOT NULL CHECK (amount <> '0'),
    balance_after TEXT NOT NULL,
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (account, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE wallet_hold (
    key BLOB NOT NULL CHECK (length(key) = 16) PRIMARY KEY,
    id TEXT NOT NULL,
    debit BLOB NOT NULL CHECK (length(debit) = 16),
    credit BLOB NOT NULL CHECK (length(credit) = 16),
    asset TEXT NOT NULL,
    amount TEXT NOT NULL CHECK (amount NOT LIKE '-%' AND amount <> '0'),
    expires_at INTEGER,
    captured TEXT NOT NULL CHECK (captured NOT LIKE '-%'),
    remaining TEXT NOT NULL CHECK (remaining NOT LIKE '-%'),
    status TEXT NOT NULL CHECK (status IN ('open', 'captured', 'released', 'expired'))
) STRICT, WITHOUT ROWID;

-- For the sweep.
CREATE INDEX wallet_hold_due ON wallet_hold (expires_at) WHERE status = 'open' AND expires_at IS NOT NULL;

-- A bet and its rollback meet on one row, whichever comes first.
CREATE TABLE wallet_bet (
    key BLOB NOT NULL CHECK (length(key) = 16) PRIMARY KEY,
    round BLOB CHECK (length(round) = 16),
    account BLOB CHECK (length(account) = 16),
    house BLOB CHECK (length(house) = 16),
    amount TEXT CHECK (amount NOT LIKE '-%'),
    chain BLOB CHECK (length(chain) = 16),
    status TEXT NOT NULL CHECK (status IN ('open', 'won', 'rolled_back', 'void')),
    ended_by BLOB CHECK (length(ended_by) = 16),
    earlier BLOB
) STRICT, WITHOUT ROWID;

CREATE TABLE wallet_round (
    key BLOB NOT NULL CHECK (length(key) = 16) PRIMARY KEY,
    id TEXT NOT NULL,
    round BLOB NOT NULL CHECK (length(round) = 16),
    account BLOB NOT NULL CHECK (length(account) = 16),
    status TEXT NOT NULL CHECK (status IN ('open', 'completed', 'cancelled', 'void')),
    staked TEXT NOT NULL,
    paid TEXT NOT NULL,
    chain BLOB CHECK (length(chain) = 16),
    ended_by BLOB CHECK (length(ended_by) = 16),
    recent BLOB,
    game TEXT
) STRICT, WITHOUT ROWID;

-- The players of a round, for `semel round`.
CREATE INDEX wallet_round_round ON wallet_round (round);

-- The scales that amounts were written in. A consumer whose config has another one is refused.
CREATE TABLE wallet_asset (
    asset TEXT NOT NULL PRIMARY KEY,
    scale INTEGER NOT NULL CHECK (scale BETWEEN 0 AND 18)
) STRICT, WITHOUT ROWID;
