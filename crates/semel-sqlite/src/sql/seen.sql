-- Which keys are there, and what their rows say. The unit holds the write lock, so the answer holds until its
-- commit. Index: primary key, one descent a key.
SELECT ledger.key, ledger.fingerprint, ledger.scheme, ledger.field_sums, ledger.outcome, ledger.code,
       ledger.reply, ledger.source, ledger.at
FROM (VALUES (?, ?)) AS claim
CROSS JOIN semel_ledger AS ledger
WHERE ledger.consumer = claim.column1 AND ledger.key = claim.column2
