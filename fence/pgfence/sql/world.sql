-- The world of the table of tiles.
SELECT name, id::text FROM {world}
