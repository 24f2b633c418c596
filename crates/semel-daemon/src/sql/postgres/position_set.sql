-- Sets a partition's position, in every lane, to a place whose record before it is not known. Locks the rows. Index:
-- primary key.
UPDATE semel_position
SET next = $4, mark = ''::bytea
WHERE consumer = $1 AND source = $2 AND partition = $3
