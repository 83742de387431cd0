-- Removes a row, if it is below the floor. ?1 tile.
DELETE FROM tilefence_tiles
WHERE tile = ?1 AND contact IS NULL AND epoch <= (SELECT epoch FROM tilefence_floor)
