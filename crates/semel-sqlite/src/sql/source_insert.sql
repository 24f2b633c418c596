-- The caller holds the write lock and gives the number. Index: primary key.
INSERT INTO semel_source (consumer, id, name)
VALUES (?1, ?2, ?3)
