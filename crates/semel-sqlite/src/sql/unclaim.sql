-- Deletes claims of this unit (TRAPS T38). The unit holds the write lock. Index: primary key, one descent a key.
DELETE FROM semel_ledger
WHERE key IN (VALUES (?)) AND consumer = ?
