-- Finds rows to retire. $1 the microseconds a tile must have been released for, $2 the most rows.
SELECT tile, epoch FROM {table}
WHERE contact IS NULL AND released_at <= now() - $1::bigint * interval '1 microsecond' AND epoch <= 1099511627776
LIMIT $2
