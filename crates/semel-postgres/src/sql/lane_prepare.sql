-- Raises the lane's fence. Locks its row until the unit ends. Index: primary key.
PREPARE semel_raise AS
UPDATE semel_fence
SET unit = unit + 1, seen_at = now()
WHERE consumer = current_setting('semel.consumer')::integer
  AND instance = current_setting('semel.instance')::uuid
  AND lane = current_setting('semel.lane')::smallint
RETURNING unit;

-- Fails (42704, a setting that does not exist) unless the fence row was raised by this very transaction, and unless
-- its commit is durable when it is confirmed. Locks nothing: the unit holds the row. Index: primary key.
PREPARE semel_hold AS
SELECT CASE count(*)
           WHEN 1 THEN 'held'
           ELSE current_setting('semel.the_fence_is_not_ours')
       END AS fence
FROM semel_fence
WHERE consumer = current_setting('semel.consumer')::integer
  AND instance = current_setting('semel.instance')::uuid
  AND lane = current_setting('semel.lane')::smallint
  AND xmin = pg_current_xact_id()::xid
  AND current_setting('synchronous_commit') <> 'off'
