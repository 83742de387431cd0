-- Claims a tile that was released. $1 tile, $2 Floor, $3 contact, $4 claim, $5 expected epoch.
-- $6 as for promote.sql.
UPDATE {table}
SET epoch = greatest(epoch, $2::bigint) + 1, contact = $3, claim = $4::uuid, minted_at = now(),
    mints = mints + 1, released_at = NULL
WHERE tile = $1 AND epoch = $5 AND contact IS NULL AND claim <> $4::uuid
    AND (SELECT set_config('lock_timeout', $6, true)) IS NOT NULL
