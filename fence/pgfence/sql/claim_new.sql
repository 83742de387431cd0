-- Claims a tile without a row. $1 tile, $2 Floor, $3 contact, $4 claim, $5 as $6 of promote.sql.
-- On conflict it does nothing, not even lock the row, so losers do not queue up behind each other. At an
-- isolation at which raise.sql could not see what this statement has waited for, the epoch is NULL, which
-- the table refuses.
INSERT INTO {table} (tile, epoch, contact, claim, minted_at, mints)
SELECT $1::bigint, CASE current_setting('transaction_isolation') WHEN 'read committed' THEN $2::bigint + 1 END,
    $3, $4::uuid, now(), 1
WHERE (SELECT set_config('lock_timeout', $5, true)) IS NOT NULL
ON CONFLICT (tile) DO NOTHING
