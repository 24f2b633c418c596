-- Locks new rows. Index: primary key. The caller holds the consumer's row and gives the numbers.
INSERT INTO semel_source (consumer, id, name)
SELECT $1, id, name
FROM unnest($2::smallint[], $3::text[]) AS source (id, name)
