-- release.sql for many tiles, each once and in order. $1 tiles, $2 epochs, $3 claims. For the rest see
-- claim_released_set.sql.
WITH won AS (
    UPDATE {table} t
    SET contact = NULL, released_at = now()
    FROM unnest($1::bigint[], $2::bigint[], $3::uuid[]) v (tile, epoch, claim)
    WHERE t.tile = ANY ($1::bigint[]) AND t.tile = v.tile AND t.epoch = v.epoch AND t.claim = v.claim
        AND t.contact IS NOT NULL
    RETURNING t.tile, t.epoch, t.contact, t.claim, t.minted_at, t.mints
)
SELECT * FROM won WHERE (SELECT set_config('tilefence.won', count(*)::text, true) FROM won) IS NOT NULL
