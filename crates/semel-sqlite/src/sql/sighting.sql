-- Counts further deliveries of known keys. The unit holds the write lock. Index: primary key, as the arbiter.
INSERT INTO semel_sighting AS known (consumer, key, source, kind, count, partition, position, first_at, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (consumer, key, source, kind) DO UPDATE
SET count = known.count + excluded.count,
    at = excluded.at,
    partition = excluded.partition,
    position = excluded.position
