-- Gives rows of this unit another outcome than the claim wrote, or a reply. The unit holds the write lock.
-- Index: primary key, one descent a key.
UPDATE semel_ledger AS ledger
SET outcome = note.column3, code = note.column4, reply = note.column5
FROM (VALUES (?, ?, ?, ?, ?)) AS note
WHERE ledger.consumer = note.column1 AND ledger.key = note.column2
