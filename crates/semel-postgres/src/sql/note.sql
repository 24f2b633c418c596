-- Gives rows of this unit another outcome than the claim wrote, or a reply. The unit holds their locks.
-- Index: semel_ledger_key, one descent a key.
UPDATE semel_ledger AS ledger
SET outcome = note.outcome, code = note.code, reply = note.reply
FROM unnest((SELECT $2::uuid[]), (SELECT $3::smallint[]), (SELECT $4::text[]), (SELECT $5::bytea[]))
    AS note (key, outcome, code, reply)
WHERE ledger.consumer = $1 AND ledger.key = note.key
