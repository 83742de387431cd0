-- Reads the rows of a span of tiles. ?1 its first, ?2 its last, ?3 the most rows.
SELECT tile, epoch, contact, claim, minted_at, mints FROM tilefence_tiles
WHERE tile BETWEEN ?1 AND ?2
ORDER BY tile
LIMIT ?3
