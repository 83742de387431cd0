-- read.sql for many tiles. $1 tiles. When the statement before it has written, and returned, all of them, there
-- is nothing left to read: the condition on the number is checked once, before any row is looked for.
SELECT tile, epoch, contact, claim, minted_at, mints FROM {table}
WHERE current_setting('tilefence.won')::int < cardinality($1::bigint[]) AND tile = ANY ($1::bigint[])
