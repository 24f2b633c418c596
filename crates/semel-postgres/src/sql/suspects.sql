-- The lanes of which two or more lives crashed at unit 0 since the lane was last acquitted ($2: the instance of no
-- life). Locks nothing. Index: primary key, by the consumer: one row a lane and life.
SELECT fence.lane
FROM semel_fence AS fence
LEFT JOIN semel_fence AS acquittal
  ON acquittal.consumer = fence.consumer AND acquittal.lane = fence.lane AND acquittal.instance = $2
WHERE fence.consumer = $1
  AND fence.instance <> $2
  AND fence.unit = 0
  AND fence.seen_at < now() - make_interval(secs => $3)
  AND (acquittal.seen_at IS NULL OR fence.seen_at > acquittal.seen_at)
GROUP BY fence.lane
HAVING count(*) >= 2
ORDER BY fence.lane
