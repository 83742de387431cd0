-- Claims a tile without a row. ?1 tile, ?2 Above, ?3 contact, ?4 claim.
-- Without the floor's row the epoch is NULL, which the table refuses.
INSERT INTO tilefence_tiles (tile, epoch, contact, claim, minted_at, mints)
VALUES (?1, (SELECT max(epoch, ?2) + 1 FROM tilefence_floor), ?3, ?4, CAST(unixepoch('subsec') * 1000 AS INTEGER), 1)
ON CONFLICT (tile) DO NOTHING
