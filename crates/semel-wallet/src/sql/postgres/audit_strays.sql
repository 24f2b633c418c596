-- Audit: entries without an account or an operation. No lock; by the primary keys.
SELECT
    e.operation, e.version
FROM wallet_entry AS e
LEFT JOIN wallet_account AS a ON a.key = e.account
LEFT JOIN wallet_operation AS o ON o.key = e.operation
WHERE a.key IS NULL
    OR o.key IS NULL
