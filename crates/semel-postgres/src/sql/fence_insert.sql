-- Locks a new row. Index: primary key, as the arbiter.
INSERT INTO semel_fence (consumer, instance, lane, unit)
VALUES ($1, $2, $3, 0)
ON CONFLICT (consumer, instance, lane) DO NOTHING
