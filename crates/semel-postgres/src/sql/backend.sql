-- Which process of the server answers. Locks nothing.
SELECT pg_backend_pid()
