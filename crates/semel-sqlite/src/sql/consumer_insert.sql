-- The caller holds the write lock and has not found the name.
INSERT INTO semel_consumer (name, handler, rules)
VALUES (?1, ?2, ?3)
RETURNING id
