-- Deletes what crashed lives of a consumer left: nobody asks for their commits any more. Locks what it deletes.
-- Index: primary key, by the consumer.
DELETE FROM semel_fence
WHERE consumer = $1 AND seen_at < now() - interval '7 days'
