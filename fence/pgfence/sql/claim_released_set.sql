-- claim_released.sql for many tiles, each once and in order. $1 tiles, $2 their Floor, $3 contacts, $4 claims,
-- $5 expected epochs. That a tile is one of $1 follows from the join; it is repeated so that the planner
-- can select partitions.
-- It returns the rows it has written, which are the transaction's until it ends, and leaves their number to
-- read_set.sql in a setting of the transaction.
WITH won AS (
    UPDATE {table} t
    SET epoch = greatest(t.epoch, v.above) + 1, contact = v.contact, claim = v.claim, minted_at = now(),
        mints = t.mints + 1, released_at = NULL
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::uuid[], $5::bigint[])
        v (tile, above, contact, claim, expected)
    WHERE t.tile = ANY ($1::bigint[]) AND t.tile = v.tile AND t.epoch = v.expected AND t.contact IS NULL
        AND t.claim <> v.claim
    RETURNING t.tile, t.epoch, t.contact, t.claim, t.minted_at, t.mints
)
SELECT * FROM won WHERE (SELECT set_config('tilefence.won', count(*)::text, true) FROM won) IS NOT NULL
