-- Raises the attempts of keys and gives them back. The unit holds the write lock. Index: primary key, as the
-- arbiter.
INSERT INTO semel_attempt AS known (consumer, key, attempts)
VALUES (?, ?, 1)
ON CONFLICT (consumer, key) DO UPDATE
SET attempts = known.attempts + 1
RETURNING key, attempts
