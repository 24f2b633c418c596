-- Ends a lane. Takes the write lock. Index: primary key.
DELETE FROM semel_fence
WHERE consumer = ?1 AND instance = ?2 AND lane = ?3
