-- One operation and the name of its reply's account. No lock; by the primary keys.
SELECT
    o.key, o.id, o.op, o.leg, o.debit, o.credit, o.amount, o.asset, o.reference, o.bet, o.note,
    o.account, o.balance, o.available, o.version, o.tombstoned, o.refunded, o.reversed_by,
    a.id
FROM wallet_operation AS o
LEFT JOIN wallet_account AS a ON a.key = o.account
WHERE o.key = ?1
