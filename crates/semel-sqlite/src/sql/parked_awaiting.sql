-- Parked messages that wait for one of these keys. Takes no lock: the release is a compare-and-set on the ledger
-- row. Index: semel_parked_awaiting.
SELECT parked.key, coalesce(length(parked.payload), 0) + length(parked.headers) + coalesce(length(parked.message_key), 0)
FROM (VALUES (?, ?)) AS wanted
CROSS JOIN semel_parked AS parked
WHERE parked.consumer = wanted.column1 AND parked.awaiting_key = wanted.column2
ORDER BY parked.key
LIMIT ?
