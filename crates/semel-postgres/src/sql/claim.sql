-- Inserts the keys that are not there, in the order given (sorted), and tells which. Waits for a transaction
-- that holds an uncommitted row of one of them, up to lock_timeout. Index: semel_ledger_key, as the arbiter:
-- one descent a key whatever the statistics say (TRAPS T05, T30).
WITH claimed AS (
    INSERT INTO semel_ledger (consumer, key, fingerprint, scheme, field_sums, source, outcome)
    SELECT $1, key, fingerprint, scheme, field_sums, source, 1
    FROM unnest($2::uuid[], $3::uuid[], $4::smallint[], $5::bytea[], $6::smallint[])
        AS claim (key, fingerprint, scheme, field_sums, source)
    ON CONFLICT (consumer, key) DO NOTHING
    RETURNING key
)
SELECT array_agg(key) FROM claimed
