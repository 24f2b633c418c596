-- Audit. No lock; reads everything, sorted.
SELECT
    b.key, b.status, b.ended_by, o.op, r.key, c.op
FROM wallet_bet AS b
LEFT JOIN wallet_operation AS o ON o.key = b.key
LEFT JOIN wallet_operation AS r ON r.reference = b.key AND r.op = 'rollback' AND r.tombstoned IS NULL
LEFT JOIN wallet_operation AS c ON c.key = b.ended_by
ORDER BY b.key
