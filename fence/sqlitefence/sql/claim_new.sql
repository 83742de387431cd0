-- Claims a tile that was never owned. ?1 tile, ?2 Above, ?3 contact, ?4 claim.
INSERT INTO tilefence_tiles (tile, epoch, contact, claim, minted_at)
VALUES (?1, ?2 + 1, ?3, ?4, CAST(unixepoch('subsec') * 1000 AS INTEGER))
ON CONFLICT (tile) DO NOTHING
