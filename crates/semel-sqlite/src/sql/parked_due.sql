-- Parked messages with a key above this one whose time or deadline has come. Takes no lock: the release is a compare-and-set on the ledger
-- row. Index: semel_parked_due and semel_parked_deadline, which the `+` leaves in place.
SELECT parked.key, coalesce(length(parked.payload), 0) + length(parked.headers) + coalesce(length(parked.message_key), 0)
FROM semel_parked AS parked
WHERE parked.consumer = ?1
  AND (parked.due_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
       OR parked.deadline <= CAST(unixepoch('subsec') * 1000000 AS INTEGER))
  AND +parked.key > ?2
ORDER BY parked.key
LIMIT ?3
