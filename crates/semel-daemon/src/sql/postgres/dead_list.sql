-- A consumer's dead letters, oldest first; an empty code means any. No lock; the primary key finds the
-- consumer's rows, which are sorted.
SELECT d.letter, d.key, d.id, d.code, d.detail, d.field, d.attempts, d.count, s.name, d.partition, d.position,
  d.headers, d.payload, d.size, d.first_at, d.at
FROM semel_dead AS d
LEFT JOIN semel_source AS s
  ON s.consumer = d.consumer AND s.id = d.source
WHERE d.consumer = $1 AND ($2::text = '' OR d.code = $2::text)
ORDER BY d.first_at, d.source, d.partition, d.position, d.letter
