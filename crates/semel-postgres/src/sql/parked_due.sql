-- Parked messages with a key above this one whose time or deadline has come. Locks nothing: the release is a compare-and-set on the ledger row.
-- Index: semel_parked_due and semel_parked_deadline.
SELECT parked.key, parked.source, parked.attempts, parked.deadline <= now() AS last, parked.partition,
       parked.position, parked.headers, parked.message_key, parked.timestamp_ms, parked.payload, parked.id
FROM semel_parked AS parked
WHERE parked.consumer = $1 AND (parked.due_at <= now() OR parked.deadline <= now())
  AND ($2::uuid IS NULL OR parked.key > $2)
ORDER BY parked.key
LIMIT $3
