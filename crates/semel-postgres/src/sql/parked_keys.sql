-- Parked messages of these keys. Locks nothing: the release is a compare-and-set on the ledger row.
-- Index: primary key, one descent a key.
SELECT parked.key, parked.source, parked.attempts, parked.deadline <= now() AS last, parked.partition,
       parked.position, parked.headers, parked.message_key, parked.timestamp_ms, parked.payload, parked.id
FROM semel_parked AS parked
JOIN unnest((SELECT $2::uuid[])) AS wanted (key) ON wanted.key = parked.key
WHERE parked.consumer = $1
ORDER BY parked.key
