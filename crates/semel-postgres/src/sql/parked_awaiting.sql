-- Parked messages that wait for one of these keys. Locks nothing: the release is a compare-and-set on the ledger row.
-- Index: semel_parked_awaiting, one descent a key.
SELECT parked.key, coalesce(octet_length(parked.payload), 0) + octet_length(parked.headers)
       + coalesce(octet_length(parked.message_key), 0) AS size
FROM semel_parked AS parked
JOIN unnest((SELECT $2::uuid[])) AS wanted (key) ON wanted.key = parked.awaiting_key
WHERE parked.consumer = $1
ORDER BY parked.key
LIMIT $3
