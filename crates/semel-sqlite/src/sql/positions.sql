-- A source's positions: for each partition the highest of its lanes, with the mark of that row (SQLite takes
-- bare columns from the row that holds the maximum). Takes no lock. Index: primary key.
SELECT partition, max(next), mark
FROM semel_position
WHERE consumer = ?1 AND source = ?2
GROUP BY partition
