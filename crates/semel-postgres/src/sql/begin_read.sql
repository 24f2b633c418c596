-- Locks nothing, and cannot write: it may run on a standby.
BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY
