-- Keeps messages until their time comes. One that is parked again keeps its deadline and counts a try. Locks
-- the rows in the order given (sorted); their ledger rows are this unit's. Index: primary key, as the arbiter.
INSERT INTO semel_parked AS known (
    consumer, key, id, awaiting, awaiting_key, source, partition, position,
    headers, message_key, timestamp_ms, payload, attempts, due_at, deadline
)
SELECT $1, key, id, awaiting, awaiting_key, source, partition, position,
       headers, message_key, timestamp_ms, payload, 1,
       now() + due_in_ms * interval '1 millisecond',
       now() + deadline_in_ms * interval '1 millisecond'
FROM unnest($2::uuid[], $3::text[], $4::text[], $5::uuid[], $6::smallint[], $7::text[], $8::bigint[],
            $9::bytea[], $10::bytea[], $11::bigint[], $12::bytea[], $13::bigint[], $14::bigint[])
    AS park (key, id, awaiting, awaiting_key, source, partition, position,
             headers, message_key, timestamp_ms, payload, due_in_ms, deadline_in_ms)
ON CONFLICT (consumer, key) DO UPDATE
SET awaiting = excluded.awaiting,
    awaiting_key = excluded.awaiting_key,
    due_at = excluded.due_at,
    attempts = known.attempts + 1
