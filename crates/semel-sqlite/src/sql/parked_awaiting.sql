-- Parked messages that wait for one of these keys. Takes no lock: the release is a compare-and-set on the ledger
-- row. Index: semel_parked_awaiting.
SELECT parked.key, parked.source, parked.attempts,
       parked.deadline <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS last,
       parked.partition, parked.position, parked.headers, parked.message_key, parked.timestamp_ms, parked.payload, parked.id
FROM (VALUES (?, ?)) AS wanted
CROSS JOIN semel_parked AS parked
WHERE parked.consumer = wanted.column1 AND parked.awaiting_key = wanted.column2
ORDER BY parked.key
LIMIT ?
