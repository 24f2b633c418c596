-- What a unit's deliveries leave besides their outcomes, in one request. Raises the lane's position rows, never lowers
-- them: only another life's lane of that number may hold them too. Then counts further deliveries of known keys (an
-- insert in WITH that nobody reads runs last). Locks the rows of each table in the order given (sorted). Index: each
-- table's primary key, as the arbiter.
WITH sighting AS (
    INSERT INTO semel_sighting AS known (consumer, key, source, kind, count, partition, position)
    SELECT $1, key, source, kind, count, partition, position
    FROM unnest($3::uuid[], $4::smallint[], $5::smallint[], $6::bigint[], $7::text[], $8::bigint[])
        AS sighting (key, source, kind, count, partition, position)
    ON CONFLICT (consumer, key, source, kind) DO UPDATE
    SET count = known.count + excluded.count,
        at = excluded.at,
        partition = excluded.partition,
        position = excluded.position
)
INSERT INTO semel_position AS known (consumer, lane, source, partition, next, mark)
SELECT $1, $2, source, partition, next, mark
FROM unnest($9::smallint[], $10::text[], $11::bigint[], $12::bytea[])
    AS reached (source, partition, next, mark)
ON CONFLICT (consumer, source, partition, lane) DO UPDATE
SET next = excluded.next, mark = excluded.mark
WHERE excluded.next > known.next
