-- Audit. No lock; reads everything, sorted.
SELECT
    a.key, a.id, a.pending, h.remaining
FROM wallet_account AS a
LEFT JOIN wallet_hold AS h ON h.debit = a.key AND h.status = 'open'
ORDER BY a.key
