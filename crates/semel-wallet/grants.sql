-- What the role that runs consumers needs on the wallet's tables, beside `grants.sql` of semel-postgres. Run it as
-- the owner of the schema, with psql:
--
--   psql -v schema=public -v role=semel_run -f grants.sql
--
-- Entries and scales are written once: nobody who runs consumers can change or delete them.
SET search_path = :"schema";
GRANT SELECT, INSERT ON wallet_entry, wallet_asset TO :"role";
GRANT SELECT, INSERT, UPDATE ON
    wallet_account, wallet_operation, wallet_hold, wallet_bet, wallet_round
    TO :"role";
