-- What the rows of known keys say. Its own statement, so that it sees what committed while the claim waited.
-- Locks nothing. Index: semel_ledger_key, one descent a key (TRAPS T30).
SELECT claim.place, known.fingerprint, known.scheme, known.field_sums, known.outcome, known.code, known.reply, known.source, known.at
FROM unnest((SELECT $2::uuid[])) WITH ORDINALITY AS claim (key, place)
CROSS JOIN LATERAL (
    SELECT fingerprint, scheme, field_sums, outcome, code, reply, source, at
    FROM semel_ledger AS ledger
    WHERE ledger.consumer = $1 AND ledger.key = claim.key
    LIMIT 1
) AS known
