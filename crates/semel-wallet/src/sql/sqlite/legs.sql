-- An operation and its further legs, of a list of keys, with the names of accounts. No lock; by the primary keys.
SELECT
    o.op, o.id, s.id, d.id, c.id, o.amount, o.asset
FROM json_each('["' || replace(?1, ',', '","') || '"]') AS wanted
CROSS JOIN wallet_operation AS o ON o.key = unhex(wanted.value, '-')
LEFT JOIN wallet_account AS s ON s.key = o.account
LEFT JOIN wallet_account AS d ON d.key = o.debit
LEFT JOIN wallet_account AS c ON c.key = o.credit
ORDER BY o.leg
