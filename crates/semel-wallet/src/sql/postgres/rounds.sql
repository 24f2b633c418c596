-- The players of a round, with their names. No lock; by wallet_round_round. A tombstone's player may not be open.
SELECT
    r.key, r.id, r.round, r.account, r.game, r.status, r.staked, r.paid, r.recent, r.chain, r.ended_by,
    a.id
FROM wallet_round AS r
LEFT JOIN wallet_account AS a ON a.key = r.account
WHERE r.round = $1
ORDER BY a.id, r.key
