-- Records a scale, the first one for ever. Locks the new row; by the primary key.
INSERT INTO wallet_asset (asset, scale)
VALUES ($1, $2)
ON CONFLICT (asset) DO NOTHING
