-- What a connection promises, set once when it is made. Locks nothing. A lowered synchronous_commit is raised:
-- a commit that is confirmed before it is durable would be acked and lost.
SELECT set_config('search_path', $1, false),
       set_config('statement_timeout', $2, false),
       set_config('lock_timeout', $3, false),
       set_config('idle_in_transaction_session_timeout', $4, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('default_transaction_read_only', $5, false),
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit')
                      WHEN 'off' THEN 'on'
                      ELSE current_setting('synchronous_commit')
                  END, false),
       pg_is_in_recovery() AS standby
