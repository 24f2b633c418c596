-- The next visible messages in the order of their numbers, with what they count against the byte budget. The
-- caller holds the write lock. Index: semel_queue_order; leased messages before them are passed over.
SELECT id,
       256 + coalesce(length(payload), 0) + 6 * length(headers) + coalesce(length(message_key), 0) AS size
FROM semel_queue
WHERE queue = ?1 AND visible_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
ORDER BY id
LIMIT ?2
