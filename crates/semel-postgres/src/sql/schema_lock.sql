-- Lets one process at a time migrate a schema. Lock: advisory, until the transaction ends.
SELECT pg_advisory_xact_lock($1, hashtext($2))
