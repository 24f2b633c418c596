-- Parked messages with a key above this one whose time or deadline has come. Locks nothing: the release is a compare-and-set on the ledger row.
-- Index: semel_parked_due and semel_parked_deadline.
SELECT parked.key, coalesce(octet_length(parked.payload), 0) + octet_length(parked.headers)
       + coalesce(octet_length(parked.message_key), 0) AS size
FROM semel_parked AS parked
WHERE parked.consumer = $1 AND (parked.due_at <= now() OR parked.deadline <= now())
  AND ($2::uuid IS NULL OR parked.key > $2)
ORDER BY parked.key
LIMIT $3
