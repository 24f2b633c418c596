-- All parked messages with a key above this one. Takes no lock: the release is a compare-and-set on the ledger
-- row. Index: primary key.
SELECT parked.key, coalesce(length(parked.payload), 0) + length(parked.headers) + coalesce(length(parked.message_key), 0)
FROM semel_parked AS parked
WHERE parked.consumer = ?1 AND parked.key > ?2
ORDER BY parked.key
LIMIT ?3
