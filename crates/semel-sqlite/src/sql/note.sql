-- Gives a row of this unit another outcome than the claim wrote, or a reply. The unit holds the write lock.
-- Index: primary key.
UPDATE semel_ledger
SET outcome = ?, code = ?, reply = ?
WHERE consumer = ? AND key = ?
