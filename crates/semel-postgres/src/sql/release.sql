-- Takes parked keys back: a compare-and-set of the outcome from parked (4) to applied (1). Locks the rows in
-- the order given (sorted), then updates them. Index: semel_ledger_key, one descent a key and step.
WITH held AS MATERIALIZED (
    SELECT known.key
    FROM unnest((SELECT $2::uuid[])) AS claim (key)
    CROSS JOIN LATERAL (
        SELECT ledger.key
        FROM semel_ledger AS ledger
        WHERE ledger.consumer = $1 AND ledger.key = claim.key AND ledger.outcome = 4
        FOR NO KEY UPDATE
    ) AS known
), released AS (
    UPDATE semel_ledger AS ledger
    SET outcome = 1, code = NULL, reply = NULL
    FROM held
    WHERE ledger.consumer = $1 AND ledger.key = held.key AND ledger.outcome = 4
    RETURNING ledger.key
)
SELECT array_agg(key) FROM released
