-- The recorded scales. No lock; reads everything, a row for each asset.
SELECT
    asset, scale
FROM wallet_asset
ORDER BY asset
