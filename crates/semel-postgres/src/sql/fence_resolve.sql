-- Locks the fence row, and so waits for a transaction that still holds it (TRAPS T03, T66). A write, so that
-- its commit waits for a standby like the unit's own (TRAPS T06). Index: primary key.
UPDATE semel_fence
SET seen_at = now()
WHERE consumer = $1 AND instance = $2 AND lane = $3
RETURNING unit
