-- Audit: each player's round with the operations that ended it. No lock; reads everything, sorted.
-- Materialized: SQLite makes an index of its own for such a table, and never for one without rowid.
WITH ending AS MATERIALIZED (
    SELECT key, reference, op, tombstoned
    FROM wallet_operation
    WHERE op IN ('close_round', 'cancel_round')
)
SELECT
    r.key, r.id, r.status, r.ended_by, o.key, o.op, o.tombstoned
FROM wallet_round AS r
LEFT JOIN ending AS o ON o.reference = r.key
ORDER BY r.key
