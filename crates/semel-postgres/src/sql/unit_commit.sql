-- Ends a unit in one request. The COMMIT runs only if the statement before it did not fail, so only if the fence
-- row was raised by the transaction that is to be committed.
EXECUTE semel_hold;
COMMIT
