-- As claim.sql, for claims of several schemes or sources: an array each, which the server has to unnest too.
WITH claimed AS (
    INSERT INTO semel_ledger (consumer, key, fingerprint, scheme, field_sums, source, outcome)
    SELECT $1, key, fingerprint, scheme, field_sums, source, 1
    FROM unnest($2::uuid[], $3::uuid[], $4::smallint[], $5::bytea[], $6::smallint[])
        AS claim (key, fingerprint, scheme, field_sums, source)
    ON CONFLICT (consumer, key) DO NOTHING
    RETURNING key
)
SELECT array_agg(key) FROM claimed
