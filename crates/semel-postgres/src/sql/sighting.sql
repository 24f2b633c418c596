-- Counts further deliveries of known keys. Locks the rows in the order given (sorted).
-- Index: primary key, as the arbiter.
INSERT INTO semel_sighting AS known (consumer, key, source, kind, count, partition, position)
SELECT $1, key, source, kind, count, partition, position
FROM unnest($2::uuid[], $3::smallint[], $4::smallint[], $5::bigint[], $6::text[], $7::bigint[])
    AS sighting (key, source, kind, count, partition, position)
ON CONFLICT (consumer, key, source, kind) DO UPDATE
SET count = known.count + excluded.count,
    at = excluded.at,
    partition = excluded.partition,
    position = excluded.position
