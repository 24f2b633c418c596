-- Forgets parked messages that ended. The unit holds the write lock. Index: primary key, one descent a key.
DELETE FROM semel_parked
WHERE key IN (VALUES (?)) AND consumer = ?
