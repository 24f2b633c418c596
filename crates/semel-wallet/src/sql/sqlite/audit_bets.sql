-- Audit. No lock; reads everything, sorted.
-- Materialized: SQLite makes an index of its own for such a table, and never for one without rowid.
WITH rolled_back AS MATERIALIZED (
    SELECT key, reference
    FROM wallet_operation
    WHERE op = 'rollback' AND tombstoned IS NULL
)
SELECT
    b.key, b.status, b.ended_by, o.op, r.key, c.op
FROM wallet_bet AS b
LEFT JOIN wallet_operation AS o ON o.key = b.key
LEFT JOIN rolled_back AS r ON r.reference = b.key
LEFT JOIN wallet_operation AS c ON c.key = b.ended_by
ORDER BY b.key
