-- As unit_begin.sql, and forgets the session's plans: one made while a table was small would read the whole of
-- it for ever, since growth alone never invalidates a plan (TRAPS T30).
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
DISCARD PLANS;
EXECUTE semel_raise
