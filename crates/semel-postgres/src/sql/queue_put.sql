-- Appends messages in the order given. Locks new rows.
INSERT INTO semel_queue (queue, headers, message_key, payload)
SELECT $1, headers, message_key, payload
FROM unnest($2::bytea[], $3::bytea[], $4::bytea[]) WITH ORDINALITY AS put (headers, message_key, payload, place)
ORDER BY place
