-- Audit: how many rows the checks without a scan of their own have looked at. No lock.
SELECT
    (SELECT count(*) FROM wallet_operation WHERE leg = 0),
    (SELECT count(*) FROM semel_consumer AS c JOIN semel_ledger AS l ON l.consumer = c.id WHERE c.handler = 'wallet' AND l.outcome = 1),
    (SELECT count(*) FROM wallet_entry)
