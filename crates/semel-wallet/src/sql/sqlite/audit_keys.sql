-- Audit: applied keys of wallets without an operation. No lock; by the operations' primary key.
SELECT
    l.key, c.name
FROM semel_consumer AS c
JOIN semel_ledger AS l ON l.consumer = c.id
WHERE c.handler = 'wallet'
    AND l.outcome = 1
    AND NOT EXISTS (SELECT 1 FROM wallet_operation AS o WHERE o.key = l.key AND o.leg = 0)
