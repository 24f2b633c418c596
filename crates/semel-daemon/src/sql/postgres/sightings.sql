-- Deliveries of one key after the first. No lock; the primary key of semel_sighting serves it.
SELECT s.name, g.partition, g.position, g.kind, g.count, g.first_at, g.at
FROM semel_sighting AS g
LEFT JOIN semel_source AS s
  ON s.consumer = g.consumer AND s.id = g.source
WHERE g.consumer = $1 AND g.key = $2
ORDER BY g.first_at, g.source, g.kind
