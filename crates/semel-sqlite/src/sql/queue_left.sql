-- Is anything left, leased or not? Takes no lock. Index: semel_queue_order.
SELECT 1
FROM semel_queue
WHERE queue = ?1
LIMIT 1
