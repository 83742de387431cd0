-- claim_new.sql for many tiles, each once and in order. $1 tiles, $2 their Floor, $3 contacts, $4 claims. For
-- what it returns see claim_released_set.sql.
WITH won AS (
    INSERT INTO {table} (tile, epoch, contact, claim, minted_at, mints)
    SELECT tile, CASE current_setting('transaction_isolation') WHEN 'read committed' THEN above + 1 END,
        contact, claim, now(), 1
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::uuid[]) v (tile, above, contact, claim)
    ON CONFLICT (tile) DO NOTHING
    RETURNING tile, epoch, contact, claim, minted_at, mints
)
SELECT * FROM won WHERE (SELECT set_config('tilefence.won', count(*)::text, true) FROM won) IS NOT NULL
