-- Audit. No lock; reads everything, sorted.
SELECT
    h.key, h.id, h.amount, h.captured, h.remaining, h.status, o.op, o.amount
FROM wallet_hold AS h
LEFT JOIN wallet_operation AS o ON o.reference = h.key AND o.op IN ('capture', 'release', 'expire')
ORDER BY h.key
