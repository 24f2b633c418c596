-- A source's positions: for each partition the highest of its lanes. Locks nothing. Index: primary key.
SELECT DISTINCT ON (partition) partition, next, mark
FROM semel_position
WHERE consumer = $1 AND source = $2
ORDER BY partition, next DESC
