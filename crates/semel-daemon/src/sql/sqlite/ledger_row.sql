-- What the ledger says of one key. No lock; the primary key of semel_ledger serves it.
SELECT l.outcome, l.code, l.reply, l.fingerprint, s.name, l.at
FROM semel_ledger AS l
LEFT JOIN semel_source AS s
  ON s.consumer = l.consumer AND s.id = l.source
WHERE l.consumer = ?1 AND l.key = ?2
