-- Reads a tile's row, as the last statement of every call. ?1 tile.
SELECT tile, epoch, contact, claim, minted_at, mints FROM tilefence_tiles WHERE tile = ?1
