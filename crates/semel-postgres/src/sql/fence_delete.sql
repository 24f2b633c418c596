-- Only the version that was seen: a request that the network kept for long must not hit the row that the lane made anew
-- meanwhile. Locks the fence row. Index: primary key.
DELETE FROM semel_fence
WHERE consumer = $1 AND instance = $2 AND lane = $3 AND xmin::text = $4
