-- Raises the lane's own position rows, never lowers them. The unit holds the write lock. Index: primary key, as
-- the arbiter.
INSERT INTO semel_position AS known (consumer, lane, source, partition, next, mark)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (consumer, source, partition, lane) DO UPDATE
SET next = excluded.next, mark = excluded.mark
WHERE excluded.next > known.next
