-- Keeps dead letters; one that is there already counts up. Locks the rows in the order given (sorted).
-- Index: primary key, as the arbiter.
INSERT INTO semel_dead AS known (
    consumer, letter, key, id, code, detail, field, hash, attempts, count, source, partition, position,
    headers, message_key, timestamp_ms, payload, size
)
SELECT $1, letter, key, id, code, detail, field, hash, attempts, count, source, partition, position,
       headers, message_key, timestamp_ms, payload, size
FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::uuid[], $9::integer[],
            $10::bigint[], $11::smallint[], $12::text[], $13::bigint[], $14::bytea[], $15::bytea[], $16::bigint[],
            $17::bytea[], $18::bigint[])
    AS dead (letter, key, id, code, detail, field, hash, attempts,
             count, source, partition, position, headers, message_key, timestamp_ms,
             payload, size)
ON CONFLICT (consumer, letter) DO UPDATE
SET count = known.count + excluded.count,
    attempts = greatest(known.attempts, excluded.attempts),
    at = excluded.at
RETURNING letter, count
