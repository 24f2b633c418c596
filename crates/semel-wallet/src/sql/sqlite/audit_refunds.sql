-- Audit. No lock; reads everything, sorted.
-- Materialized: SQLite makes an index of its own for such a table, and never for one without rowid.
WITH refund AS MATERIALIZED (
    SELECT key, reference, amount
    FROM wallet_operation
    WHERE op = 'refund'
)
SELECT
    o.key, o.id, o.amount, o.refunded, r.amount
FROM wallet_operation AS o
LEFT JOIN refund AS r ON r.reference = o.key
WHERE o.refunded IS NOT NULL
    OR r.key IS NOT NULL
ORDER BY o.key
