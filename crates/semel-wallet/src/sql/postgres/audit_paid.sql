-- Audit. No lock; reads everything, sorted.
SELECT
    r.key, r.id, r.paid, o.amount
FROM wallet_round AS r
LEFT JOIN wallet_operation AS o ON o.reference = r.key AND o.op = 'win'
ORDER BY r.key
