-- All parked messages with a key above this one, whatever they wait for. Locks nothing: the release is a compare-and-set on the ledger row.
-- Index: primary key.
SELECT parked.key, coalesce(octet_length(parked.payload), 0) + octet_length(parked.headers)
       + coalesce(octet_length(parked.message_key), 0) AS size
FROM semel_parked AS parked
WHERE parked.consumer = $1 AND parked.key >= coalesce($2, '00000000-0000-0000-0000-000000000000'::uuid)
  AND ($2 IS NULL OR parked.key <> $2)
ORDER BY parked.key
LIMIT $3
