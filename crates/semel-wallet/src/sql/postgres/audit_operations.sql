-- Audit. No lock; reads everything, sorted.
SELECT
    e.operation, e.amount
FROM wallet_entry AS e
ORDER BY e.operation
