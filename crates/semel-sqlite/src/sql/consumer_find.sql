-- The caller holds the write lock, so two processes enrolling at once number its sources one after the other.
-- Index: the unique name.
SELECT id, handler, rules
FROM semel_consumer
WHERE name = ?1
