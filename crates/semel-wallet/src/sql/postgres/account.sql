-- One account. No lock; by the primary key.
SELECT
    key, id, asset, kind, limit_kind, status, posted, pending, version
FROM wallet_account
WHERE key = $1
