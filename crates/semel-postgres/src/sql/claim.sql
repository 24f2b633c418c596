-- Inserts the keys that are not there, in the order given (sorted), and tells which. Waits for a transaction
-- that holds an uncommitted row of one of them, up to lock_timeout. Index: semel_ledger_key, as the arbiter:
-- one descent a key whatever the statistics say (TRAPS T05, T30).
WITH claimed AS (
    INSERT INTO semel_ledger (consumer, scheme, source, key, fingerprint, field_sums, outcome)
    SELECT $1, $2, $3, key, fingerprint, field_sums, 1
    FROM unnest($4::uuid[], $5::uuid[], $6::bytea[]) AS claim (key, fingerprint, field_sums)
    ON CONFLICT (consumer, key) DO NOTHING
    RETURNING key
)
SELECT array_agg(key) FROM claimed
