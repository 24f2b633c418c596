-- Every source of every consumer, by names and numbers. Locks nothing. Index: the primary key of semel_source.
SELECT c.name, s.name, c.id, s.id
FROM semel_source AS s
JOIN semel_consumer AS c ON c.id = s.consumer
ORDER BY c.name, s.id
