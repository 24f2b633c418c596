-- Audit: each hold with the operation that authorized it. No lock; reads everything, sorted.
-- Materialized: SQLite makes an index of its own for such a table, and never for one without rowid.
WITH authorization AS MATERIALIZED (
    SELECT reference, debit, credit, asset, amount, note
    FROM wallet_operation
    WHERE op = 'authorize'
)
SELECT
    h.key, h.id, h.debit, h.credit, h.asset, h.amount, h.expires_at, o.debit, o.credit, o.asset, o.amount, o.note
FROM wallet_hold AS h
LEFT JOIN authorization AS o ON o.reference = h.key
ORDER BY h.key
