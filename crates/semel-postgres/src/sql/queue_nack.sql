-- Gives leases back: the messages are visible again after their delay. Locks the rows. Index: primary key.
UPDATE semel_queue AS queued
SET lease = NULL, visible_at = now() + nacked.delay_ms * interval '1 millisecond'
FROM unnest((SELECT $2::bigint[]), (SELECT $3::integer[]), (SELECT $4::bigint[])) AS nacked (id, attempt, delay_ms)
WHERE queued.id = nacked.id AND queued.lease = $1 AND queued.attempt = nacked.attempt
