-- Leads a transaction of set statements, for whose duration it holds. $1 the plan_cache_mode,
-- $2 the milliseconds it waits for a row that another transaction has locked.
-- The plan it leaves is one pass over the primary key in the order of tiles, which the values come in, too.
-- So rows are locked in that order, and two such transactions cannot deadlock; nor does the plan depend on
-- how many rows PostgreSQL believes there are. A plan type that is switched off still
-- counts as expensive where there is no other (the floor has one row and no index), which must not trigger JIT.
-- tilefence.won is no setting of the server: it is how many tiles have been written, for read_set.sql.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('enable_nestloop', 'off', true), set_config('enable_mergejoin', 'off', true),
    set_config('jit', 'off', true), set_config('plan_cache_mode', $1, true), set_config('tilefence.won', '0', true),
    set_config('lock_timeout', $2, true)
