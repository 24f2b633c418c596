-- As claim.sql, for claims of several schemes or sources: an array each, which the server has to unnest too.
WITH claim AS MATERIALIZED (
    SELECT key, fingerprint, scheme, field_sums, source, place
    FROM unnest($2::uuid[], $3::uuid[], $4::smallint[], $5::bytea[], $6::smallint[]) WITH ORDINALITY
        AS claim (key, fingerprint, scheme, field_sums, source, place)
), claimed AS (
    INSERT INTO semel_ledger (consumer, key, fingerprint, scheme, field_sums, source, outcome)
    SELECT $1, key, fingerprint, scheme, field_sums, source, 1
    FROM claim
    ON CONFLICT (consumer, key) DO NOTHING
    RETURNING key
)
SELECT claim.place, known.fingerprint, known.scheme, known.field_sums, known.outcome, known.code, known.reply, known.source, known.at
FROM claim
LEFT JOIN claimed ON claimed.key = claim.key
LEFT JOIN LATERAL (
    SELECT fingerprint, scheme, field_sums, outcome, code, reply, source, at
    FROM semel_ledger AS ledger
    WHERE ledger.consumer = $1 AND ledger.key = claim.key
    LIMIT 1
) AS known ON true
WHERE claimed.key IS NULL
