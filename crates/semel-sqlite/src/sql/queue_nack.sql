-- Gives a lease back: the message is visible again after its delay. The caller holds the write lock. Index:
-- primary key.
UPDATE semel_queue
SET lease = NULL, visible_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?3
WHERE id = ?1 AND lease = ?2
