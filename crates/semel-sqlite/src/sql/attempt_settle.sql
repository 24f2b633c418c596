-- Forgets the attempts of keys that ended. The unit holds the write lock. Index: primary key, one descent a key.
DELETE FROM semel_attempt
WHERE key IN (VALUES (?)) AND consumer = ?
