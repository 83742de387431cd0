-- Takes a tile over from an epoch. $1 tile, $2 Floor, $3 contact, $4 claim, $5 expected epoch, $6 the
-- milliseconds to wait for the row if another transaction has locked it. They are set before the row is looked for.
UPDATE {table}
SET epoch = greatest(epoch, $2::bigint) + 1, contact = $3, claim = $4::uuid, minted_at = now(),
    mints = mints + 1, released_at = NULL
WHERE tile = $1 AND epoch = $5 AND claim <> $4::uuid
    AND (SELECT set_config('lock_timeout', $6, true)) IS NOT NULL
