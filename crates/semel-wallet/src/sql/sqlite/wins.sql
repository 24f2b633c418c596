-- The wins of a player's round in order of time. No lock; by wallet_operation_win.
SELECT
    o.id, o.amount, b.id
FROM wallet_operation AS o
LEFT JOIN wallet_operation AS b ON b.key = o.bet
WHERE o.reference = ?1
    AND o.op = 'win'
ORDER BY o.at, o.key
