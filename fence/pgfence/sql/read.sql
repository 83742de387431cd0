-- Reads a tile's row, as the last statement of every call. $1 tile.
SELECT epoch, contact, claim FROM {table} WHERE tile = $1
