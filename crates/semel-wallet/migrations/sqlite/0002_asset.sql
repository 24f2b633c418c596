
-- The scales that amounts were written in. A consumer whose config has another one is refused.
CREATE TABLE wallet_asset (
    asset TEXT NOT NULL PRIMARY KEY,
    scale INTEGER NOT NULL CHECK (scale BETWEEN 0 AND 18)
) STRICT, WITHOUT ROWID;
