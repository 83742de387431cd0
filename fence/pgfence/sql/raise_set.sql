-- raise.sql for many tiles. $1 tiles, $2 claims, $3 the lowest epoch that claim_new_set.sql may have given
-- one of them: while that is above the floor, there is nothing to look at. It
-- returns the rows it has lifted, which claim_new_set.sql returned as they were before.
UPDATE {table} t
SET epoch = (SELECT max(epoch) + 1 FROM {floor})
FROM unnest($1::bigint[], $2::uuid[]) v (tile, claim)
WHERE ((SELECT max(epoch) FROM {floor}) >= $3::bigint) IS NOT FALSE
    AND t.tile = ANY ($1::bigint[]) AND t.tile = v.tile AND t.claim = v.claim AND t.minted_at = now()
    AND (t.epoch <= (SELECT max(epoch) FROM {floor})) IS NOT FALSE
RETURNING t.tile, t.epoch, t.contact, t.claim, t.minted_at, t.mints
