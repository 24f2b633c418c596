-- An embedded database has no server to ask.
SELECT 1 WHERE 0
