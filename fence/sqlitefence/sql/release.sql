-- Gives a tile up and keeps its epoch, or the next claim would mint it again. ?1 tile, ?2 epoch, ?3 claim.
UPDATE tilefence_tiles
SET contact = NULL, released_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE tile = ?1 AND epoch = ?2 AND claim = ?3 AND contact IS NOT NULL
