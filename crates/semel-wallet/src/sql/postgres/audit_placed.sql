-- Audit: each bet with the operation that placed it and the one that ended it. No lock; by the primary keys.
SELECT
    b.key, o.id, b.status, b.round, b.account, b.house, b.amount, o.reference, o.debit, o.credit, o.amount,
    c.op, c.reference, c.bet
FROM wallet_bet AS b
LEFT JOIN wallet_operation AS o ON o.key = b.key AND o.op = 'bet'
LEFT JOIN wallet_operation AS c ON c.key = b.ended_by
