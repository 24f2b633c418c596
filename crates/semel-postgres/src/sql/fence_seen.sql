-- The version of the fence row. Locks nothing. Index: primary key.
SELECT xmin::text
FROM semel_fence
WHERE consumer = $1 AND instance = $2 AND lane = $3
