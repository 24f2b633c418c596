-- Audit: each operation with what it refers to, and the entry that its reply tells. No lock; by the primary keys.
SELECT
    o.key, o.id, o.op, o.leg, o.reference, a.key, h.key, b.key, r.key, p.op, own.key, o.bet, w.round,
    o.account, o.balance, o.version, e.balance_after, o.available,
    o.debit, o.credit, r.account
FROM wallet_operation AS o
LEFT JOIN wallet_account AS a ON a.key = o.reference
LEFT JOIN wallet_hold AS h ON h.key = o.reference
LEFT JOIN wallet_bet AS b ON b.key = o.reference
LEFT JOIN wallet_round AS r ON r.key = o.reference
LEFT JOIN wallet_operation AS p ON p.key = o.reference
LEFT JOIN wallet_bet AS own ON own.key = o.key
LEFT JOIN wallet_bet AS w ON w.key = o.bet
LEFT JOIN wallet_entry AS e ON e.account = o.account AND e.version = o.version
