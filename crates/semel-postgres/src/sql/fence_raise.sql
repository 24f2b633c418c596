-- Raises the fence of the lane that this session or transaction is named for, and tells whose it is. Locks its row
-- until the unit ends. Index: primary key.
UPDATE semel_fence
SET unit = unit + 1, seen_at = now()
WHERE consumer = current_setting('semel.consumer')::integer
  AND instance = current_setting('semel.instance')::uuid
  AND lane = current_setting('semel.lane')::smallint
RETURNING unit, consumer, instance, lane
