-- The rights of a role that only asks: show, key, balance, statement, round, dead, parked, audit, doctor. Run it as
-- the owner of the schema, with psql:
--
--   psql -v schema=public -v role=semel_read -f grants-read.sql
--
-- Dead letters, parked messages and the queue hold whole payloads.
GRANT USAGE ON SCHEMA :"schema" TO :"role";
SET search_path = :"schema";
GRANT SELECT ON
    semel_schema, semel_consumer, semel_source, semel_ledger, semel_sighting, semel_position, semel_dead,
    semel_parked, semel_attempt, semel_fence, semel_act, semel_outbox, semel_queue,
    wallet_account, wallet_operation, wallet_entry, wallet_hold, wallet_bet, wallet_round, wallet_asset
    TO :"role";
