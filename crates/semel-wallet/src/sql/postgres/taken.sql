-- Those of a list of keys that a wallet's ledger holds. No lock; one descent of the ledger's primary key for each key.
SELECT
    l.key
FROM semel_consumer AS c
CROSS JOIN unnest(string_to_array($1, ',')::uuid[]) AS wanted (key)
CROSS JOIN LATERAL (SELECT key FROM semel_ledger WHERE consumer = c.id AND key = wanted.key LIMIT 1) AS l
WHERE c.handler = 'wallet'
