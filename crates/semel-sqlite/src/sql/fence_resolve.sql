-- The number on the fence row, by a write that must commit: it waits for a lost unit's connection to end, and
-- its page overwrites what a COMMIT that failed half-way may have left in the log (TRAPS T03, T66). The caller
-- holds the write lock. Index: primary key.
UPDATE semel_fence
SET seen_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
WHERE consumer = ?1 AND instance = ?2 AND lane = ?3
RETURNING unit
