// Package pgfence is the epoch authority on PostgreSQL 15 or later, through pgx.
//
//	pool, err := pgxpool.New(ctx, "postgres://…")
//	authority, err := pgfence.New(pool, nil)
//	err = authority.Migrate(ctx) // at start; one query if there is nothing to do
//	grant, err := authority.Claim(ctx, fence.Claim{Tile: tile, Contact: "host-a:7000", ID: fence.NewClaimID()})
//
// # Guarantees
//
// An Authority keeps the promises of fence.Authority. A tile is one row. A claim, promotion
// or release is one transaction in one network round trip: the conditional write, then a read of the row
// as the write left it (for a set, the read is omitted if the write has returned every row). So the loser of a race
// learns the winner in the same round trip. Losing costs the database no lock that outlasts the winner's, and no disk
// write, unless both were in flight at the same moment.
//
// Calls that arrive while four transactions of their kind are under way gather, and go together in the next, up to 500
// of one kind in set-based statements, each row under its own condition. A call that finds less than four under way is
// sent alone and at once, so that no call waits for others. A thousand calls that arrive together, as when a host
// dies, take a few round trips. The other members of a set do not change a call's outcome: a set that the server
// refuses is split into its calls, and a ctx that ends removes only its own call.
//
// Each statement names its rows by primary key and carries its conditions itself, so that a database which
// shards the table by tile (Citus: SELECT create_distributed_table('tilefence_tiles', 'tile') and
// create_reference_table for 'tilefence_tiles_floor' and 'tilefence_tiles_world' after Migrate) can keep it on one
// shard; Config.ShardOf
// keeps sets on one. With tables partitioned by PostgreSQL itself this is tested; with Citus and Aurora
// Limitless it is not. List, Added and Retire ask every shard.
//
// An epoch is as durable as a commit is: leave fsync and synchronous_commit on. Where the database can
// fail over to a replica that is behind, or be restored from a backup, rows can regress; Floor in
// each fence.Claim prevents that an epoch is minted twice even then.
//
// # Failures
//
// A *fence.StoreError with fence.ErrNotApplied means that the server could not be reached, or that it refused
// and rolled back (serialization failure, deadlock, time limit, read-only standby, missing table or rights).
//
// When the connection is lost after the request was sent, its outcome is unknown. The call then presents the
// same request once more, on a connection that was tested just before: if the first
// copy took effect, the row carries the claim's ID and the second changes nothing. Only when that fails
// too, or ctx has ended, is the error fence.ErrUnknownOutcome; call again with the same fence.Claim. A lost
// copy can still be on its way at that time. It does no harm, because the epoch that it expects is no longer current.
//
// A row that another session keeps locked delays the other tiles of a set by 250 ms at most: then the set goes on
// without it. The call of the locked row waits alone, on the one connection that does so, and fails with
// fence.ErrNotApplied 1.75 s after it was sent. Retire leaves such a row for its next call.
//
// A switch-over may leave sessions open that take no writes any more. When the first call meets one, all connections of
// the pool are given up, idle ones at once, and the call goes on a new one: name all servers in the URL, with
// target_session_attrs=read-write, so that it finds the one that takes writes. If none does, calls fail with
// fence.ErrNotApplied, and the pool is renewed once a second at most. Lookups do not believe a standby, whose rows may
// be old; List does.
//
// A server that accepts connections and never answers is only noticed when ctx ends: always give ctx a
// deadline, and the pool a connect_timeout. A ctx that ends while a call gathers gives ErrNotApplied, one
// that ends later ErrUnknownOutcome.
//
// # Configuration of the server
//
// Sessions must start transactions at READ COMMITTED, PostgreSQL's default. At a stricter
// default_transaction_isolation every answer is still correct, but the loser of a race gets ErrNotApplied, for a
// serialization failure, instead of the winner (at SERIALIZABLE even a lookup may get it), and a
// tile without a record cannot be claimed: such a transaction does not see whether the tile's record was
// retired while it waited. All query modes of pgx work on a direct connection; the default one prepares each statement
// once per connection. Behind a pooler, as PgBouncer, whose sessions may be those of transactions, pgx's modes
// cache_statement (its default) and describe_exec are refused with a *fence.SettingError: add
// default_query_exec_mode=cache_describe to the URL.
//
// A game server's role needs SELECT, INSERT and UPDATE on the table of tiles, SELECT on its siblings with
// the suffixes _floor and _world, and SELECT on tilefence_schema if it calls Migrate. One that calls Retire needs
// DELETE on the first and UPDATE on the second, too.
//
// # Concurrency
//
// An Authority is safe for concurrent use. The pool stays the caller's to size and to close. Up to eight connections
// are in use at once, half of them for lookups, one more for every second that the server leaves one without an
// answer, and one that waits for locked rows. There is nothing to close: an Authority has goroutines only while calls
// are in progress.
//
// # Testing
//
// Programs test against memfence or sqlitefence, which pass the same conformance suite
// (fencetest.RunAuthority). This package's own tests need a server; `make test` starts one.
package pgfence
