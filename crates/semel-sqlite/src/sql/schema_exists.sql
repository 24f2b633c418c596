-- Was anything ever migrated here? Takes no lock. No index: the schema table is small.
SELECT count(*)
FROM sqlite_master
WHERE type = 'table' AND name = 'semel_schema'
