-- Ends the session that holds the fence row, if it waits for its client: one that works is left to end by
-- itself, since a COMMIT that waits for a standby must not be cut short (TRAPS T34). The holder is found by
-- the transaction id on the row, so no other session can be hit. Locks nothing. Index: primary key.
SELECT pg_terminate_backend(activity.pid, 2000)
FROM semel_fence AS fence
JOIN pg_locks AS held ON held.locktype = 'transactionid' AND held.granted AND held.transactionid = fence.xmax
JOIN pg_stat_activity AS activity ON activity.pid = held.pid
WHERE fence.consumer = $1 AND fence.instance = $2 AND fence.lane = $3
  AND activity.wait_event_type = 'Client'
