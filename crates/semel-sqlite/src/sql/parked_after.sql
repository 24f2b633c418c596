-- All parked messages with a key above this one. Takes no lock: the release is a compare-and-set on the ledger
-- row. Index: primary key.
SELECT parked.key, parked.source, parked.attempts,
       parked.deadline <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS last,
       parked.partition, parked.position, parked.headers, parked.message_key, parked.timestamp_ms, parked.payload, parked.id
FROM semel_parked AS parked
WHERE parked.consumer = ?1 AND parked.key > ?2
ORDER BY parked.key
LIMIT ?3
