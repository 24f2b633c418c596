-- Inserts keys that a look has just not found, in the order given (sorted). Waits for a transaction that holds an
-- uncommitted row of one of them, up to lock_timeout, and fails (23505) if it commits. Half the price of a claim
-- that expects collisions.
INSERT INTO semel_ledger (consumer, scheme, source, key, fingerprint, field_sums, outcome)
SELECT $1, $2, $3, unnest($4::uuid[]), unnest($5::uuid[]), unnest($6::bytea[]), 1
