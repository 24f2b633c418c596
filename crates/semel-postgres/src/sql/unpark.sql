-- Removes parked messages that ended. Locks the rows; their ledger rows are this unit's. Index: primary key.
DELETE FROM semel_parked AS known
USING unnest((SELECT $2::uuid[])) AS ended (key)
WHERE known.consumer = $1 AND known.key = ended.key
