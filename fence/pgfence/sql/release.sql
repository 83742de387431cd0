-- Gives a tile up and keeps its epoch, or the next claim would mint it again. $1 tile, $2 epoch, $3 claim,
-- $4 as $6 of promote.sql.
UPDATE {table}
SET contact = NULL, released_at = now()
WHERE tile = $1 AND epoch = $2 AND claim = $3::uuid AND contact IS NOT NULL
    AND (SELECT set_config('lock_timeout', $4, true)) IS NOT NULL
