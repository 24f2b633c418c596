
-- The scales that amounts were written in. A consumer whose config has another one is refused.
CREATE TABLE wallet_asset (
    scale smallint NOT NULL CHECK (scale BETWEEN 0 AND 18),
    asset text NOT NULL CONSTRAINT wallet_asset_key PRIMARY KEY
);
