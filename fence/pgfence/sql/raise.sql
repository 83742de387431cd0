-- Raises the row that claim_new.sql has just inserted above the floor. $1 tile, $2 claim.
-- It is a separate statement, because claim_new.sql may have waited for the removal of the tile's old row and still
-- see the previous floor. now() is constant within a transaction, so it distinguishes a row inserted by this one from
-- a row that an earlier copy of the same claim inserted. Without the
-- floor's row the epoch is NULL, which the table refuses. It returns the row if it raised it.
UPDATE {table}
SET epoch = (SELECT max(epoch) + 1 FROM {floor})
WHERE tile = $1 AND claim = $2::uuid AND minted_at = now() AND (epoch <= (SELECT max(epoch) FROM {floor})) IS NOT FALSE
RETURNING tile, epoch, contact, claim, minted_at, mints
