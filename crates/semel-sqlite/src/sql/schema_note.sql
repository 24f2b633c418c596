-- Notes a migration. The caller holds the write lock. Index: primary key.
INSERT INTO semel_schema (part, version, name, min_binary)
VALUES (?1, ?2, ?3, ?2)
