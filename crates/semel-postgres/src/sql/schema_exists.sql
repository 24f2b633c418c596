-- Is the table of migrations in the schema of this session? Locks nothing.
SELECT EXISTS (
    SELECT 1
    FROM pg_tables
    WHERE schemaname = current_schema() AND tablename = 'semel_schema'
)
