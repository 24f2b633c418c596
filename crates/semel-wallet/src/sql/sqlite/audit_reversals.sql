-- Audit. No lock; reads everything, sorted.
-- Materialized: SQLite makes an index of its own for such a table, and never for one without rowid.
WITH reversal AS MATERIALIZED (
    SELECT key, reference
    FROM wallet_operation
    WHERE op = 'reverse'
)
SELECT
    o.key, o.id, o.reversed_by, r.key
FROM wallet_operation AS o
LEFT JOIN reversal AS r ON r.reference = o.key
WHERE o.reversed_by IS NOT NULL
    OR r.key IS NOT NULL
ORDER BY o.key
