-- Inserts the keys that are not there, in the order given (sorted), and tells what the rows of the others said when it
-- began: nulls for one that was committed while this waited for it, which only a later statement sees. Waits for a
-- transaction that holds an uncommitted row of one of them, up to lock_timeout. Index: semel_ledger_key, as the arbiter,
-- whatever the statistics say (TRAPS T05), and for the look, as seen.sql (T30).
WITH claim AS MATERIALIZED (
    SELECT key, fingerprint, field_sums, place
    FROM unnest($4::uuid[], $5::uuid[], $6::bytea[]) WITH ORDINALITY AS claim (key, fingerprint, field_sums, place)
), claimed AS (
    INSERT INTO semel_ledger (consumer, scheme, source, key, fingerprint, field_sums, outcome)
    SELECT $1, $2, $3, key, fingerprint, field_sums, 1
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
