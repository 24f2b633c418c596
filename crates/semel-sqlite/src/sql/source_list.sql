-- The caller holds the write lock. Index: primary key.
SELECT id, name
FROM semel_source
WHERE consumer = ?1
