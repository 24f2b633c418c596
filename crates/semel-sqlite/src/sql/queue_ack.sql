-- Deletes messages that are done, if their lease is still this one. The caller holds the write lock. Index:
-- primary key, one descent a message.
DELETE FROM semel_queue
WHERE id IN (VALUES (?)) AND lease = ?
