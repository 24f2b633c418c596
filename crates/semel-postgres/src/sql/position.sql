-- Raises the lane's own position rows, never lowers them. Locks the rows in the order given (sorted); no other
-- lane of this life has them. Index: primary key, as the arbiter.
INSERT INTO semel_position AS known (consumer, lane, source, partition, next, mark)
SELECT $1, $2, source, partition, next, mark
FROM unnest($3::smallint[], $4::text[], $5::bigint[], $6::bytea[])
    AS reached (source, partition, next, mark)
ON CONFLICT (consumer, source, partition, lane) DO UPDATE
SET next = excluded.next, mark = excluded.mark
WHERE excluded.next > known.next
