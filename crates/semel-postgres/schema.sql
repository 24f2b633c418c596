-- The schema as the migrations make it, to be read in one piece. A test proves the two equal.

CREATE TABLE IF NOT EXISTS semel_schema (
    part text NOT NULL,
    version integer NOT NULL,
    name text NOT NULL,
    min_binary integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (part, version)
);

-- The ledger, its companions and the embedded queue. Times are the database's clock. No table has a serial
-- in its ledger part: duplicates burn none (TRAPS T21).

CREATE TABLE semel_consumer (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    handler text NOT NULL,
    rules uuid NOT NULL,
    created timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE semel_source (
    consumer integer NOT NULL REFERENCES semel_consumer,
    id smallint NOT NULL,
    name text NOT NULL,
    PRIMARY KEY (consumer, id),
    UNIQUE (consumer, name)
);

-- One row for each key that is held. The unique key is (consumer, key) and nothing else (TRAPS T20). Columns
-- stand in the order that wastes no padding.
CREATE TABLE semel_ledger (
    at timestamptz NOT NULL DEFAULT now(),
    consumer integer NOT NULL,
    outcome smallint NOT NULL,
    scheme smallint NOT NULL,
    source smallint NOT NULL,
    key uuid NOT NULL,
    fingerprint uuid NOT NULL,
    field_sums bytea NOT NULL,
    code text,
    reply bytea,
    CONSTRAINT semel_ledger_key PRIMARY KEY (consumer, key)
);

CREATE TABLE semel_sighting (
    consumer integer NOT NULL,
    source smallint NOT NULL,
    kind smallint NOT NULL,
    key uuid NOT NULL,
    count bigint NOT NULL,
    first_at timestamptz NOT NULL DEFAULT now(),
    at timestamptz NOT NULL DEFAULT now(),
    position bigint,
    partition text NOT NULL,
    PRIMARY KEY (consumer, key, source, kind)
);

CREATE TABLE semel_position (
    consumer integer NOT NULL,
    source smallint NOT NULL,
    lane smallint NOT NULL,
    partition text NOT NULL,
    next bigint NOT NULL,
    mark bytea NOT NULL,
    PRIMARY KEY (consumer, source, partition, lane)
) WITH (fillfactor = 50);

CREATE TABLE semel_parked (
    consumer integer NOT NULL,
    attempts integer NOT NULL,
    key uuid NOT NULL,
    awaiting_key uuid NOT NULL,
    parked_at timestamptz NOT NULL DEFAULT now(),
    due_at timestamptz NOT NULL,
    deadline timestamptz NOT NULL,
    timestamp_ms bigint,
    position bigint,
    source smallint NOT NULL,
    awaiting text NOT NULL,
    id text NOT NULL,
    partition text NOT NULL,
    headers bytea NOT NULL,
    message_key bytea,
    payload bytea,
    PRIMARY KEY (consumer, key)
);
CREATE INDEX semel_parked_awaiting ON semel_parked (consumer, awaiting_key);
CREATE INDEX semel_parked_due ON semel_parked (consumer, due_at);
CREATE INDEX semel_parked_deadline ON semel_parked (consumer, deadline);

CREATE TABLE semel_dead (
    consumer integer NOT NULL,
    attempts integer NOT NULL,
    letter uuid NOT NULL,
    hash uuid NOT NULL,
    key uuid,
    count bigint NOT NULL,
    size bigint NOT NULL,
    first_at timestamptz NOT NULL DEFAULT now(),
    at timestamptz NOT NULL DEFAULT now(),
    timestamp_ms bigint,
    position bigint,
    source smallint NOT NULL,
    code text NOT NULL,
    detail text NOT NULL,
    field text,
    id text,
    partition text NOT NULL,
    headers bytea NOT NULL,
    message_key bytea,
    payload bytea,
    PRIMARY KEY (consumer, letter)
);
CREATE INDEX semel_dead_key ON semel_dead (consumer, key);

CREATE TABLE semel_attempt (
    consumer integer NOT NULL,
    attempts integer NOT NULL,
    key uuid NOT NULL,
    PRIMARY KEY (consumer, key)
);

CREATE TABLE semel_outbox (
    consumer integer NOT NULL,
    lane smallint NOT NULL,
    key uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    sink text NOT NULL,
    headers bytea NOT NULL,
    message_key bytea,
    payload bytea,
    PRIMARY KEY (consumer, key)
);

-- One row a lane and life, raised by every unit: half empty pages keep its updates in place.
CREATE TABLE semel_fence (
    unit bigint NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now(),
    consumer integer NOT NULL,
    lane smallint NOT NULL,
    instance uuid NOT NULL,
    PRIMARY KEY (consumer, instance, lane)
) WITH (fillfactor = 50);

-- What operators did, written before it is done: nothing happens without a trace.
CREATE TABLE semel_act (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    at timestamptz NOT NULL DEFAULT now(),
    consumer integer NOT NULL,
    act text NOT NULL,
    who text NOT NULL,
    why text NOT NULL,
    detail text NOT NULL
);

-- Taken in the order of `id`; `visible_at` is in no index, so that a lease updates the row in place.
CREATE TABLE semel_queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    enqueued_at timestamptz NOT NULL DEFAULT now(),
    visible_at timestamptz NOT NULL DEFAULT now(),
    lease uuid,
    attempt integer NOT NULL DEFAULT 0,
    queue text NOT NULL,
    headers bytea NOT NULL,
    message_key bytea,
    payload bytea
) WITH (fillfactor = 70);
CREATE INDEX semel_queue_order ON semel_queue (queue, id);
