-- Reads the rows that some transactions have made, in their order. $1 and $2 the transaction and the tile of the row
-- before, $3 the first transaction that is left out, $4 the most rows.
SELECT tile, epoch, contact, claim, minted_at, mints, added::text FROM {table}
WHERE (added, tile) > ($1::text::xid8, $2::bigint) AND added < $3::text::xid8
ORDER BY added, tile
LIMIT $4
