-- A consumer's parked messages, the next due first. No lock; the index (consumer, due_at) serves it.
SELECT key, id, awaiting, attempts, due_at, deadline, awaiting_key, partition, message_key, payload
FROM semel_parked
WHERE consumer = ?1
ORDER BY due_at, key
