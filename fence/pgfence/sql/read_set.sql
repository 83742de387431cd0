-- read.sql for many tiles. $1 tiles.
SELECT tile, epoch, contact, claim, minted_at, mints FROM {table} WHERE tile = ANY ($1::bigint[])
