-- Audit. No lock; reads everything, sorted.
SELECT
    o.key, o.id, o.reversed_by, r.key
FROM wallet_operation AS o
LEFT JOIN wallet_operation AS r ON r.reference = o.key AND r.op = 'reverse'
WHERE o.reversed_by IS NOT NULL
    OR r.key IS NOT NULL
ORDER BY o.key
