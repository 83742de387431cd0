-- Removes a row. $1 tile, $2 an epoch the floor was raised to before this transaction began, $3 the
-- microseconds a tile must have been released for. A row that another transaction has locked is left for the next call:
-- a claim of it is under way, or claims of the others would wait with this statement.
DELETE FROM {table}
WHERE tile = $1 AND tile IN (SELECT tile FROM {table} WHERE tile = $1 FOR UPDATE SKIP LOCKED) AND contact IS NULL
    AND epoch <= $2 AND released_at <= now() - $3::bigint * interval '1 microsecond'
