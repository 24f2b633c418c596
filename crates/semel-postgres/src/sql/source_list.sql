-- Locks nothing: the caller holds the consumer's row. Index: primary key.
SELECT id, name
FROM semel_source
WHERE consumer = $1
