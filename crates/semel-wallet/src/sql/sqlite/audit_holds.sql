-- Audit. No lock; reads everything, sorted.
-- Materialized: SQLite makes an index of its own for such a table, and never for one without rowid.
WITH part AS MATERIALIZED (
    SELECT reference, op, amount
    FROM wallet_operation
    WHERE op IN ('capture', 'release', 'expire')
)
SELECT
    h.key, h.id, h.amount, h.captured, h.remaining, h.status, o.op, o.amount
FROM wallet_hold AS h
LEFT JOIN part AS o ON o.reference = h.key
ORDER BY h.key
