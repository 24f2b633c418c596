-- The server's settings that decide what a confirmed commit is worth, and its room for connections: as many as it and
-- the role allow, and how many clients it has. `reset_val` is what a session begins with. Locks nothing.
SELECT (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'),
       current_setting('synchronous_standby_names'),
       current_setting('fsync'),
       (SELECT count(*) FROM pg_stat_replication),
       (SELECT least(
           current_setting('max_connections')::bigint
               - CASE WHEN rolsuper THEN 0 ELSE current_setting('superuser_reserved_connections')::bigint END,
           CASE WHEN rolconnlimit < 0 THEN 2147483647 ELSE rolconnlimit END,
           (SELECT CASE WHEN datconnlimit < 0 THEN 2147483647 ELSE datconnlimit END
            FROM pg_database WHERE datname = current_database()))
        FROM pg_roles WHERE rolname = current_user),
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
