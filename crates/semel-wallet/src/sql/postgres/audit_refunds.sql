-- Audit. No lock; reads everything, sorted.
SELECT
    o.key, o.id, o.amount, o.refunded, r.amount
FROM wallet_operation AS o
LEFT JOIN wallet_operation AS r ON r.reference = o.key AND r.op = 'refund'
WHERE o.refunded IS NOT NULL
    OR r.key IS NOT NULL
ORDER BY o.key
