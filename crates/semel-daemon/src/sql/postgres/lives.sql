-- Process starts by their fence rows, and whether each was seen in the last 30 seconds. Locks nothing. Index: the
-- primary key of semel_fence; its rows are few.
SELECT c.name, count(*), max(f.seen_at), (max(f.seen_at) > now() - interval '30 seconds')::int
FROM semel_fence AS f
JOIN semel_consumer AS c ON c.id = f.consumer
GROUP BY c.name, f.instance
ORDER BY c.name, max(f.seen_at)
