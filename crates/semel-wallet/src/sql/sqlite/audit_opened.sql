-- Audit: each account with the operations that opened it and set its status. No lock; reads everything, sorted.
SELECT
    a.key, a.id, a.asset, a.kind, a.limit_kind, a.status, o.op, o.asset, o.note
FROM wallet_account AS a
LEFT JOIN wallet_operation AS o ON o.reference = a.key AND o.op IN ('open_account', 'freeze', 'unfreeze', 'close_account')
ORDER BY a.key
