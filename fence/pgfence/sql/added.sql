-- Reads the rows that some transactions have made, in their order. $1 and $2 the transaction and the tile of the row
-- before, $3 the first transaction that is left out, $4 the most rows. A bare "added" behind ORDER BY would be
-- the text, by which 1000 is before 999.
SELECT tile, epoch, contact, claim, minted_at, mints, added::text FROM {table} record
WHERE (record.added, record.tile) > ($1::text::xid8, $2::bigint) AND record.added < $3::text::xid8
ORDER BY record.added, record.tile
LIMIT $4
