-- Locks nothing. READ COMMITTED, whatever the role's default is: a duplicate must see what committed while
-- it waited (TRAPS T04).
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE
