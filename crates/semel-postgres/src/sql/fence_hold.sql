-- Fails (42704, a setting that does not exist) unless the fence row was raised by this very transaction, and unless
-- its commit is durable when it is confirmed. A lane's name that was set for another transaction is empty here. Locks
-- nothing: the unit holds the row. Index: primary key.
SELECT CASE count(*)
           WHEN 1 THEN 'held'
           ELSE current_setting('semel.the_fence_is_not_ours')
       END AS fence
FROM semel_fence
WHERE consumer = nullif(current_setting('semel.consumer', true), '')::integer
  AND instance = nullif(current_setting('semel.instance', true), '')::uuid
  AND lane = nullif(current_setting('semel.lane', true), '')::smallint
  AND xmin = pg_current_xact_id()::xid
  AND current_setting('synchronous_commit') <> 'off'
