-- How many messages a queue has, leased ones included; more than a hundred thousand are not counted. Locks nothing.
-- Index: semel_queue_order.
SELECT count(*)
FROM (SELECT 1 FROM semel_queue WHERE queue = $1 LIMIT 100000) AS waiting
