-- Audit: each hold with the operation that authorized it. No lock; reads everything, sorted.
SELECT
    h.key, h.id, h.debit, h.credit, h.asset, h.amount, h.expires_at, o.debit, o.credit, o.asset, o.amount, o.note
FROM wallet_hold AS h
LEFT JOIN wallet_operation AS o ON o.reference = h.key AND o.op = 'authorize'
ORDER BY h.key
