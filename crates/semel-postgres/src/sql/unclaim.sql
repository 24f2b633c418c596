-- Deletes claims of this unit (TRAPS T38). The unit holds their locks. Index: semel_ledger_key.
DELETE FROM semel_ledger AS ledger
USING unnest((SELECT $2::uuid[])) AS claim (key)
WHERE ledger.consumer = $1 AND ledger.key = claim.key
