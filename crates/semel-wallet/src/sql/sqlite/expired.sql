-- Holds that the database's clock says are past their time. No lock; by wallet_hold_due.
SELECT
    key, id
FROM wallet_hold
WHERE status = 'open'
    AND expires_at IS NOT NULL
    AND expires_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
ORDER BY expires_at
LIMIT ?1
