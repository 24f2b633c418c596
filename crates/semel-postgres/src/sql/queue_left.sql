-- Is anything left, leased or not? Locks nothing. Index: semel_queue_order.
SELECT EXISTS (
    SELECT 1
    FROM semel_queue
    WHERE queue = $1
)
