-- Leases a message. The caller holds the write lock since it chose it. Index: primary key.
UPDATE semel_queue
SET attempt = attempt + 1,
    visible_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?,
    lease = ?
WHERE id = ?
RETURNING id, attempt, enqueued_at, headers, message_key, payload
