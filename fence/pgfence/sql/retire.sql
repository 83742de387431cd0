-- Removes a row. $1 tile, $2 an epoch the floor was raised to before this transaction began, $3 the
-- microseconds a tile must have been released for. If the statement waits for a claim, it checks the row again.
DELETE FROM {table}
WHERE tile = $1 AND contact IS NULL AND epoch <= $2 AND released_at <= now() - $3::bigint * interval '1 microsecond'
