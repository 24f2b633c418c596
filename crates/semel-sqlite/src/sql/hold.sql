-- Does the fence row still carry this unit's number? It shows the old one when SQLite has rolled the unit back
-- by itself (TRAPS T17). The unit holds the write lock. Index: primary key.
SELECT unit
FROM semel_fence
WHERE consumer = ?1 AND instance = ?2 AND lane = ?3
