-- The migrations of a part that ran. Takes no lock. Index: primary key.
SELECT version, name, min_binary
FROM semel_schema
WHERE part = ?1
ORDER BY version
