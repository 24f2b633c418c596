-- One parked message. No lock; the primary key of semel_parked serves it.
SELECT key, id, awaiting, attempts, due_at, deadline, awaiting_key, partition, message_key, payload
FROM semel_parked
WHERE consumer = ?1 AND key = ?2
