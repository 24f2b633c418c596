-- Keeps messages until their time comes. One that is parked again keeps its deadline and first content, and
-- counts a try. The unit holds the write lock. Index: primary key, as the arbiter.
INSERT INTO semel_parked AS known (
    consumer, key, id, awaiting, awaiting_key, source, partition, position,
    headers, message_key, timestamp_ms, payload, attempts, parked_at, due_at, deadline
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?)
ON CONFLICT (consumer, key) DO UPDATE
SET awaiting = excluded.awaiting,
    awaiting_key = excluded.awaiting_key,
    due_at = excluded.due_at,
    attempts = known.attempts + 1
