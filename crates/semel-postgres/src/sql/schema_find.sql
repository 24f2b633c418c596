-- Is the schema there? Locks nothing.
SELECT EXISTS (
    SELECT 1
    FROM pg_namespace
    WHERE nspname = $1
)
