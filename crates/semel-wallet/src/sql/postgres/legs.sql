-- An operation and its further legs, of a list of keys, with the names of accounts. No lock; by the primary keys.
SELECT
    o.op, o.id, s.id, d.id, c.id, o.amount, o.asset
FROM unnest(string_to_array($1, ',')::uuid[]) AS wanted (key)
CROSS JOIN LATERAL (SELECT * FROM wallet_operation WHERE key = wanted.key LIMIT 1) AS o
LEFT JOIN wallet_account AS s ON s.key = o.account
LEFT JOIN wallet_account AS d ON d.key = o.debit
LEFT JOIN wallet_account AS c ON c.key = o.credit
ORDER BY o.leg
