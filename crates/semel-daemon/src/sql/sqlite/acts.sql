-- The operators' newest acts. Locks nothing. Index: none; its rows are few.
SELECT a.at, c.name, a.act, a.who, a.why, a.detail
FROM semel_act AS a
JOIN semel_consumer AS c ON c.id = a.consumer
ORDER BY a.at DESC, a.id DESC
LIMIT ?1
