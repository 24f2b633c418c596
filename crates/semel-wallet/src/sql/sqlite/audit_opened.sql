-- Audit: each account with the operations that opened it and set its status. No lock; reads everything, sorted.
-- Materialized: SQLite makes an index of its own for such a table, and never for one without rowid.
WITH act AS MATERIALIZED (
    SELECT reference, op, asset, note
    FROM wallet_operation
    WHERE op IN ('open_account', 'freeze', 'unfreeze', 'close_account')
)
SELECT
    a.key, a.id, a.asset, a.kind, a.limit_kind, a.status, o.op, o.asset, o.note
FROM wallet_account AS a
LEFT JOIN act AS o ON o.reference = a.key
ORDER BY a.key
