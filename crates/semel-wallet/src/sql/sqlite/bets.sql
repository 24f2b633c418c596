-- The bets of a list of keys, in its order, with their ids. No lock; one descent of the primary keys each.
SELECT
    b.key, b.round, b.account, b.house, b.amount, b.earlier, b.chain, b.status, b.ended_by, o.id
FROM json_each('["' || replace(?1, ',', '","') || '"]') AS wanted
CROSS JOIN wallet_bet AS b ON b.key = unhex(wanted.value, '-')
CROSS JOIN wallet_operation AS o ON o.key = b.key
ORDER BY wanted.key
