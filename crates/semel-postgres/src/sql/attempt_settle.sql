-- Forgets the attempts of keys that ended. Locks the rows; their ledger rows are this unit's, so no other
-- unit wants them. Index: primary key.
DELETE FROM semel_attempt AS known
USING unnest((SELECT $2::uuid[])) AS settled (key)
WHERE known.consumer = $1 AND known.key = settled.key
