-- Forgets how far a partition was read, in every lane. Locks the rows. Index: primary key.
DELETE FROM semel_position
WHERE consumer = $1 AND source = $2 AND partition = $3
