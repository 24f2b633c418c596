-- Appends messages in the order given. The caller holds the write lock.
INSERT INTO semel_queue (queue, headers, message_key, payload)
VALUES (?, ?, ?, ?)
