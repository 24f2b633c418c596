-- Leases messages. The caller holds the write lock since it chose them. Index: primary key, one descent a message.
UPDATE semel_queue AS queued
SET attempt = queued.attempt + 1,
    visible_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + taken.column2,
    lease = taken.column3
FROM (VALUES (?, ?, ?)) AS taken
WHERE queued.id = taken.column1
RETURNING id, attempt, enqueued_at, headers, message_key, payload
