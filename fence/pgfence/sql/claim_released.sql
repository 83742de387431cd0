-- Claims a tile that was released. $1 tile, $2 Above, $3 contact, $4 claim.
-- A claim that minted the row's epoch is spent: a late copy of it must not bring back an owner who left.
-- The limit on epoch keeps the next one at 2^53-1 or below.
UPDATE {table}
SET epoch = greatest(epoch, $2::bigint) + 1, contact = $3, claim = $4::uuid, minted_at = now()
WHERE tile = $1 AND contact IS NULL AND claim <> $4::uuid AND epoch < 9007199254740991
