-- Deletes messages that are done, if this source still has their lease. Locks the rows; nobody else wants a
-- leased row before its lease runs out. Index: primary key.
DELETE FROM semel_queue AS queued
USING unnest((SELECT $2::bigint[]), (SELECT $3::integer[])) AS acked (id, attempt)
WHERE queued.id = acked.id AND queued.lease = $1 AND queued.attempt = acked.attempt
