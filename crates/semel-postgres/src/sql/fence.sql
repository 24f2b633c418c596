-- Locks the lane's fence row until the unit ends. Index: primary key.
UPDATE semel_fence
SET unit = unit + 1, seen_at = now()
WHERE consumer = $1 AND instance = $2 AND lane = $3
RETURNING unit
