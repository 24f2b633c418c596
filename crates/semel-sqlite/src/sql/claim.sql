-- Inserts keys that `seen` has not found. The unit holds the write lock since before it looked, so none can have
-- come in between; if one had, its row would stay and the unit would notice by the count. Anything else that is
-- wrong with a row is an error (TRAPS T10). Index: primary key, as the arbiter: one descent a key.
INSERT INTO semel_ledger (consumer, key, fingerprint, scheme, field_sums, outcome, source, at)
VALUES (?, ?, ?, ?, ?, 1, ?, ?)
ON CONFLICT (consumer, key) DO NOTHING
