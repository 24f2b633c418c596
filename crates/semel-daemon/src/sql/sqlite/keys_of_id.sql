-- Keys under which an id is kept as text: for ids whose key cannot be computed from them. No lock; reads the
-- consumer's parked messages and dead letters.
SELECT key
FROM semel_parked
WHERE consumer = ?1 AND id = ?2
UNION
SELECT key
FROM semel_dead
WHERE consumer = ?1 AND id = ?2 AND key IS NOT NULL
