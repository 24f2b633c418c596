-- How many parked messages and dead letters each consumer has. Locks nothing. Indexes: the primary keys of
-- semel_parked and semel_dead.
SELECT name,
       (SELECT count(*) FROM semel_parked WHERE semel_parked.consumer = semel_consumer.id),
       (SELECT count(*) FROM semel_dead WHERE semel_dead.consumer = semel_consumer.id)
FROM semel_consumer
ORDER BY name
