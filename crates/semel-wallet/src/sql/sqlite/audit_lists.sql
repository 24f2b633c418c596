-- Audit: each player's round with its bets. No lock; reads everything, sorted.
-- Materialized: SQLite makes an index of its own for such a table, and never for one without rowid.
WITH bet AS MATERIALIZED (
    SELECT key, round, earlier, chain
    FROM wallet_bet
)
SELECT
    r.key, r.id, r.round, r.account, r.recent, r.chain, b.key, b.earlier, b.chain
FROM wallet_round AS r
LEFT JOIN bet AS b ON b.round = r.key
ORDER BY r.key
