-- Opens a unit in one request: READ COMMITTED, whatever the role's default is, since a duplicate must see what
-- committed while it waited (TRAPS T04), then the fence. Locks the lane's fence row until the unit ends.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
EXECUTE semel_raise
