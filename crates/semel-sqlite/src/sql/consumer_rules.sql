-- Accepts changed key rules. The caller holds the write lock. Index: primary key.
UPDATE semel_consumer
SET rules = ?2
WHERE id = ?1
