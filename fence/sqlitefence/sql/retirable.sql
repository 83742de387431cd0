-- Finds rows to retire. ?1 the milliseconds a tile must have been released for, ?2 the most rows.
SELECT tile, epoch FROM tilefence_tiles
WHERE contact IS NULL AND released_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1 AND epoch <= 1099511627776
LIMIT ?2
