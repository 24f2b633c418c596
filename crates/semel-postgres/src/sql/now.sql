-- The database's time. Locks nothing.
SELECT now()
