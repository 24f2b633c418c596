-- Takes parked keys back: a compare-and-set of the outcome from parked (4) to applied (1). The unit holds the
-- write lock. Index: primary key, one descent a key.
UPDATE semel_ledger
SET outcome = 1, code = NULL, reply = NULL
WHERE key IN (VALUES (?)) AND consumer = ? AND outcome = 4
RETURNING key
