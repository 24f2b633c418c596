-- The Book and the Rounds. Amounts are minor units of 128 bits. Fixed-width columns come first, so that rows
-- waste no padding; zeros and values that equal their neighbour are NULL in wallet_operation.

CREATE TABLE wallet_account (
    version bigint NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT now(),
    key uuid NOT NULL CONSTRAINT wallet_account_key PRIMARY KEY,
    id text NOT NULL,
    asset text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('cash', 'bonus', 'house', 'external')),
    limit_kind text NOT NULL CHECK (limit_kind IN ('no_negative', 'none')),
    status text NOT NULL CHECK (status IN ('active', 'frozen', 'closed')),
    posted numeric(39, 0) NOT NULL CHECK (posted BETWEEN -170141183460469231731687303715884105728 AND 170141183460469231731687303715884105727),
    pending numeric(39, 0) NOT NULL CHECK (pending BETWEEN 0 AND 170141183460469231731687303715884105727),
    CONSTRAINT wallet_account_limit CHECK (limit_kind = 'none' OR posted >= pending)
) WITH (fillfactor = 50);

-- One row for each applied operation and for each further leg of a group.
CREATE TABLE wallet_operation (
    at timestamptz NOT NULL DEFAULT now(),
    version bigint,
    leg smallint NOT NULL,
    tombstoned smallint,
    key uuid NOT NULL CONSTRAINT wallet_operation_key PRIMARY KEY,
    debit uuid,
    credit uuid,
    reference uuid,
    bet uuid,
    account uuid,
    reversed_by uuid,
    id text NOT NULL,
    op text NOT NULL,
    asset text,
    amount numeric(39, 0) CHECK (amount BETWEEN 0 AND 170141183460469231731687303715884105727),
    balance numeric(39, 0),
    available numeric(39, 0),
    refunded numeric(39, 0) CHECK (refunded BETWEEN 0 AND amount),
    note text
);

-- The wins of a round, for `semel round`; other operations pay nothing for it.
CREATE INDEX wallet_operation_win ON wallet_operation (reference) WHERE op = 'win';

-- Insert-only. The version makes one sequence per account without gaps.
CREATE TABLE wallet_entry (
    at timestamptz NOT NULL DEFAULT now(),
    version bigint NOT NULL CHECK (version > 0),
    account uuid NOT NULL,
    operation uuid NOT NULL,
    amount numeric(39, 0) NOT NULL CHECK (amount <> 0),
    balance_after numeric(39, 0) NOT NULL,
    CONSTRAINT wallet_entry_key PRIMARY KEY (account, version)
);

CREATE TABLE wallet_hold (
    expires_at timestamptz,
    key uuid NOT NULL CONSTRAINT wallet_hold_key PRIMARY KEY,
    debit uuid NOT NULL,
    credit uuid NOT NULL,
    id text NOT NULL,
    asset text NOT NULL,
    status text NOT NULL CHECK (status IN ('open', 'captured', 'released', 'expired')),
    amount numeric(39, 0) NOT NULL CHECK (amount BETWEEN 1 AND 170141183460469231731687303715884105727),
    captured numeric(39, 0) NOT NULL,
    remaining numeric(39, 0) NOT NULL,
    CONSTRAINT wallet_hold_sum CHECK (captured >= 0 AND remaining >= 0 AND captured + remaining <= amount)
);

-- For the sweep.
CREATE INDEX wallet_hold_due ON wallet_hold (expires_at) WHERE status = 'open' AND expires_at IS NOT NULL;

-- A bet and its rollback meet on one row, whichever comes first.
CREATE TABLE wallet_bet (
    key uuid NOT NULL CONSTRAINT wallet_bet_key PRIMARY KEY,
    round uuid,
    account uuid,
    house uuid,
    chain uuid,
    ended_by uuid,
    status text NOT NULL CHECK (status IN ('open', 'won', 'rolled_back', 'void')),
    amount numeric(39, 0),
    earlier bytea
);

CREATE TABLE wallet_round (
    key uuid NOT NULL CONSTRAINT wallet_round_key PRIMARY KEY,
    round uuid NOT NULL,
    account uuid NOT NULL,
    chain uuid,
    ended_by uuid,
    id text NOT NULL,
    status text NOT NULL CHECK (status IN ('open', 'completed', 'cancelled', 'void')),
    staked numeric(39, 0) NOT NULL,
    paid numeric(39, 0) NOT NULL,
    recent bytea,
    game text
) WITH (fillfactor = 50);

-- The players of a round, for `semel round`.
CREATE INDEX wallet_round_round ON wallet_round (round);

-- The scales that amounts were written in. A consumer whose config has another one is refused.
CREATE TABLE wallet_asset (
    scale smallint NOT NULL CHECK (scale BETWEEN 0 AND 18),
    asset text NOT NULL CONSTRAINT wallet_asset_key PRIMARY KEY
);
