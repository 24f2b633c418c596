-- Audit. No lock; reads everything, sorted.
-- Materialized: SQLite makes an index of its own for such a table, and never for one without rowid.
WITH stake AS MATERIALIZED (
    SELECT round, amount
    FROM wallet_bet
    WHERE status IN ('open', 'won')
)
SELECT
    r.key, r.id, r.staked, b.amount
FROM wallet_round AS r
LEFT JOIN stake AS b ON b.round = r.key
ORDER BY r.key
