-- Those of a list of keys that a wallet's ledger holds. No lock; one descent of the ledger's primary key for each key.
SELECT
    l.key
FROM semel_consumer AS c
CROSS JOIN json_each('["' || replace(?1, ',', '","') || '"]') AS wanted
CROSS JOIN semel_ledger AS l ON l.consumer = c.id AND l.key = unhex(wanted.value, '-')
WHERE c.handler = 'wallet'
