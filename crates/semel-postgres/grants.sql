-- The least rights of the role that runs consumers, as opposed to the role that migrates. Run it as the owner
-- of the schema, with psql:
--
--   psql -v schema=public -v role=semel_run -f grants.sql
--
-- It needs no DDL, no sequence but the queue's and the consumers' (both identity columns, which need no grant),
-- and no membership: ending a silent session of its own role (`pg_terminate_backend`) is allowed to every role.
-- The tables of the handler need their own grants; the wallet has `grants.sql` of its crate.
GRANT USAGE ON SCHEMA :"schema" TO :"role";
SET search_path = :"schema";
GRANT SELECT ON semel_schema TO :"role";
GRANT SELECT, INSERT ON semel_act TO :"role";
GRANT SELECT, INSERT, UPDATE ON semel_consumer, semel_source, semel_sighting, semel_dead TO :"role";
GRANT SELECT, INSERT, UPDATE, DELETE ON
    semel_position, semel_ledger, semel_parked, semel_attempt, semel_outbox, semel_fence, semel_queue
    TO :"role";
