-- Raises the attempts of keys and gives them back. Locks the rows in the order given (sorted).
-- Index: primary key, as the arbiter.
INSERT INTO semel_attempt AS known (consumer, key, attempts)
SELECT $1, key, 1
FROM unnest($2::uuid[]) AS attempt (key)
ON CONFLICT (consumer, key) DO UPDATE
SET attempts = known.attempts + 1
RETURNING key, attempts
