-- The database's time, Unix ms. Takes no lock.
SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)
