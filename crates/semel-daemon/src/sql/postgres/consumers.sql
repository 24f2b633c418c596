-- Every consumer that the ledger knows. No lock; a handful of rows.
SELECT id, name
FROM semel_consumer
ORDER BY name
