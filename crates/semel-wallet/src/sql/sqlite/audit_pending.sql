-- Audit. No lock; reads everything, sorted.
-- Materialized: SQLite makes an index of its own for such a table, and never for one without rowid.
WITH open_hold AS MATERIALIZED (
    SELECT debit, remaining
    FROM wallet_hold
    WHERE status = 'open'
)
SELECT
    a.key, a.id, a.pending, h.remaining
FROM wallet_account AS a
LEFT JOIN open_hold AS h ON h.debit = a.key
ORDER BY a.key
