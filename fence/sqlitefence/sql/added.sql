-- Reads the rows made after the nth. ?1 n, ?2 the most rows.
SELECT tile, epoch, contact, claim, minted_at, mints, added FROM tilefence_tiles
WHERE added > ?1
ORDER BY added
LIMIT ?2
