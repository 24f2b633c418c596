-- Audit. No lock; reads everything, sorted.
SELECT
    r.key, r.id, r.staked, b.amount
FROM wallet_round AS r
LEFT JOIN wallet_bet AS b ON b.round = r.key AND b.status IN ('open', 'won')
ORDER BY r.key
