-- Deletes what crashed lives of a consumer left: nobody asks for their commits any more. Takes the write lock.
-- Index: primary key, by the consumer.
DELETE FROM semel_fence
WHERE consumer = ?1 AND seen_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - 604800000000
