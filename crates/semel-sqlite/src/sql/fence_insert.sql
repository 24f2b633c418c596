-- A lane's fence row, if it is not there. Takes the write lock. Index: primary key, as the arbiter.
INSERT INTO semel_fence (consumer, instance, lane, unit)
VALUES (?1, ?2, ?3, 0)
ON CONFLICT (consumer, instance, lane) DO UPDATE
SET seen_at = excluded.seen_at
RETURNING unit
