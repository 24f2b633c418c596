-- Keeps dead letters; one that is there already counts up. The unit holds the write lock. Index: primary key, as
-- the arbiter.
INSERT INTO semel_dead AS known (
    consumer, letter, key, id, code, detail, field, hash, attempts, count, source, partition, position,
    headers, message_key, timestamp_ms, payload, size, first_at, at
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (consumer, letter) DO UPDATE
SET count = known.count + 1, at = excluded.at
RETURNING count
