-- Raises the lane's fence, and gives the unit its time. The unit holds the write lock. Index: primary key.
UPDATE semel_fence
SET unit = unit + 1, seen_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
WHERE consumer = ?1 AND instance = ?2 AND lane = ?3
RETURNING unit, seen_at
