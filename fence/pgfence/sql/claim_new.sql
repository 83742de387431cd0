-- Claims a tile that was never owned. $1 tile, $2 Above, $3 contact, $4 claim.
-- On conflict it does nothing, not even lock the row, so losers do not queue up behind each other.
INSERT INTO {table} (tile, epoch, contact, claim, minted_at)
VALUES ($1, $2::bigint + 1, $3, $4::uuid, now())
ON CONFLICT (tile) DO NOTHING
