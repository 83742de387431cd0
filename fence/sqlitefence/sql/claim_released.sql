-- Claims a tile that was released. ?1 tile, ?2 Above, ?3 contact, ?4 claim.
-- A claim that minted the row's epoch is spent: a late copy of it must not bring back an owner who left.
-- The limit on epoch keeps the next one at 2^53-1 or below.
UPDATE tilefence_tiles
SET epoch = max(epoch, ?2) + 1, contact = ?3, claim = ?4, minted_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE tile = ?1 AND contact IS NULL AND claim <> ?4 AND epoch < 9007199254740991
