-- Audit: each player's round with the operations that ended it. No lock; reads everything, sorted.
SELECT
    r.key, r.id, r.status, r.ended_by, o.key, o.op, o.tombstoned
FROM wallet_round AS r
LEFT JOIN wallet_operation AS o ON o.reference = r.key AND o.op IN ('close_round', 'cancel_round')
ORDER BY r.key
