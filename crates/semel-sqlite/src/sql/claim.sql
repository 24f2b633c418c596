-- Inserts the keys that are not there, and tells which. Only a row of this very key means Seen; anything else
-- that is wrong with a row is an error (TRAPS T10). The unit holds the write lock. Index: primary key, as the
-- arbiter: one descent a key.
INSERT INTO semel_ledger (consumer, key, fingerprint, scheme, field_sums, outcome, source)
VALUES (?, ?, ?, ?, ?, 1, ?)
ON CONFLICT (consumer, key) DO NOTHING
RETURNING key
