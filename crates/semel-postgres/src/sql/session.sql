-- What a session promises, set once when it is made; behind a pooler ($6: local) what a transaction promises, set as
-- it begins. Locks nothing. A lowered synchronous_commit is raised: a commit that is confirmed before it is durable
-- would be acked and lost.
SELECT set_config('search_path', $1, $6),
       set_config('statement_timeout', $2, $6),
       set_config('lock_timeout', $3, $6),
       set_config('idle_in_transaction_session_timeout', $4, $6),
       set_config('default_transaction_isolation', 'read committed', $6),
       set_config('default_transaction_read_only', $5, $6),
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit')
                      WHEN 'off' THEN 'on'
                      ELSE current_setting('synchronous_commit')
                  END, $6),
       pg_is_in_recovery() AS standby
