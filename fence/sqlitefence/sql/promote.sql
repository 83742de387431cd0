-- Takes a tile over from an epoch. ?1 tile, ?2 Above, ?3 contact, ?4 claim, ?5 expected epoch.
UPDATE tilefence_tiles
SET epoch = max(epoch, ?2) + 1, contact = ?3, claim = ?4,
    minted_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), mints = mints + 1, released_at = NULL
WHERE tile = ?1 AND epoch = ?5 AND claim <> ?4
