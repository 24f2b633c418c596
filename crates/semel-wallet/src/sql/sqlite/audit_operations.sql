-- Audit: each operation with its entries. No lock; reads everything, sorted.
-- Materialized: SQLite makes an index of its own for such a table, and never for one without rowid.
WITH entry AS MATERIALIZED (
    SELECT operation, account, amount
    FROM wallet_entry
)
SELECT
    o.key, o.id, o.op, o.debit, o.credit, o.amount, o.asset, o.tombstoned, e.account, e.amount, a.asset
FROM wallet_operation AS o
LEFT JOIN entry AS e ON e.operation = o.key
LEFT JOIN wallet_account AS a ON a.key = e.account
ORDER BY o.key
