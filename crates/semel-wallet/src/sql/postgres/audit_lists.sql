-- Audit: each player's round with its bets. No lock; reads everything, sorted.
SELECT
    r.key, r.id, r.round, r.account, r.recent, r.chain, b.key, b.earlier, b.chain
FROM wallet_round AS r
LEFT JOIN wallet_bet AS b ON b.round = r.key
ORDER BY r.key
