-- Audit: operations whose key no wallet's ledger holds as applied (outcome 1). No lock; by the ledger's primary key.
SELECT
    o.key, o.id
FROM wallet_operation AS o
WHERE o.leg = 0
    AND NOT EXISTS (
        SELECT 1
        FROM semel_consumer AS c
        JOIN semel_ledger AS l ON l.consumer = c.id AND l.key = o.key
        WHERE c.handler = 'wallet'
            AND l.outcome = 1
    )
