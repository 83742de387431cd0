-- release.sql for many tiles, each once and in order. $1 tiles, $2 epochs, $3 claims. For = ANY see
-- claim_released_set.sql.
UPDATE {table} t
SET contact = NULL, released_at = now()
FROM unnest($1::bigint[], $2::bigint[], $3::uuid[]) v (tile, epoch, claim)
WHERE t.tile = ANY ($1::bigint[]) AND t.tile = v.tile AND t.epoch = v.epoch AND t.claim = v.claim AND t.contact IS NOT NULL
