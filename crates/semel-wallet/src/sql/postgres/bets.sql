-- The bets of a list of keys, in its order, with their ids. No lock; one descent of the primary keys each.
SELECT
    b.key, b.round, b.account, b.house, b.amount, b.earlier, b.chain, b.status, b.ended_by, o.id
FROM unnest(string_to_array($1, ',')::uuid[]) WITH ORDINALITY AS wanted (key, place)
CROSS JOIN LATERAL (SELECT * FROM wallet_bet WHERE key = wanted.key LIMIT 1) AS b
CROSS JOIN LATERAL (SELECT id FROM wallet_operation WHERE key = wanted.key LIMIT 1) AS o
ORDER BY wanted.place
