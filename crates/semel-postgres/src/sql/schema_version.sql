-- The version of a part, and the least version that a program must know. Locks nothing. Index: primary key.
SELECT coalesce(max(version), 0), coalesce(max(min_binary), 0)
FROM semel_schema
WHERE part = $1
