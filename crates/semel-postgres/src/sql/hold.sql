-- Does the fence row still carry this unit's number, written by this very transaction? Locks nothing: the
-- unit holds the row. Index: primary key. The COMMIT behind it runs without a statement timeout: a COMMIT
-- that is cancelled while it waits for a standby answers as if it were durable (TRAPS T34).
SELECT unit = $4 AND xmin = pg_current_xact_id()::xid AS held,
       set_config('statement_timeout', '0', true) AS unlimited
FROM semel_fence
WHERE consumer = $1 AND instance = $2 AND lane = $3
