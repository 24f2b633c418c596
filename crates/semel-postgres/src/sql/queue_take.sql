-- Leases the next visible messages in the order of their ids, up to a count and a sum of bytes (one larger
-- message goes alone). Locks the rows it takes and skips those that others hold; the lock ends with the
-- statement, the lease does not. Index: semel_queue_order.
WITH locked AS MATERIALIZED (
    SELECT id,
           256 + coalesce(octet_length(payload), 0) + 6 * octet_length(headers)
               + coalesce(octet_length(message_key), 0) AS size
    FROM semel_queue
    WHERE queue = $1 AND visible_at <= now()
    ORDER BY id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
), taken AS MATERIALIZED (
    SELECT id, sum(size) OVER (ORDER BY id) AS total, row_number() OVER (ORDER BY id) AS place
    FROM locked
)
UPDATE semel_queue AS queued
SET lease = $4, visible_at = now() + $5 * interval '1 millisecond', attempt = queued.attempt + 1
FROM taken
WHERE queued.id = taken.id AND (taken.place = 1 OR taken.total <= $3)
RETURNING queued.id, queued.attempt, queued.enqueued_at, queued.headers, queued.message_key, queued.payload
