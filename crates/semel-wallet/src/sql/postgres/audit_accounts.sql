-- Audit. No lock; reads everything, sorted.
SELECT
    a.key, a.id, a.asset, a.limit_kind, a.posted, a.pending, a.version, e.version, e.amount, e.balance_after
FROM wallet_account AS a
LEFT JOIN wallet_entry AS e ON e.account = a.key
ORDER BY a.key, e.version
