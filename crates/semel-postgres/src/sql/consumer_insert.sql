-- Locks a new row. Index: the unique name, as the arbiter. Run only after the consumer was not found, so that
-- starts burn no numbers (TRAPS T21).
INSERT INTO semel_consumer (name, handler, rules)
VALUES ($1, $2, $3)
ON CONFLICT (name) DO NOTHING
