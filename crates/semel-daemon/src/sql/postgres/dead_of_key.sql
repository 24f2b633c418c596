-- Dead letters of one key, oldest first. No lock; the index (consumer, key) serves it.
SELECT d.letter, d.key, d.id, d.code, d.detail, d.field, d.attempts, d.count, s.name, d.partition, d.position,
  d.headers, d.payload, d.size, d.first_at, d.at
FROM semel_dead AS d
LEFT JOIN semel_source AS s
  ON s.consumer = d.consumer AND s.id = d.source
WHERE d.consumer = $1 AND d.key = $2
ORDER BY d.at, d.source, d.partition, d.position, d.letter
