-- Reads a tile's row, as the last statement of every call. ?1 tile.
SELECT epoch, contact, claim FROM tilefence_tiles WHERE tile = ?1
