// Package pgfence is the epoch authority on PostgreSQL 15 or later, through pgx.
//
//	pool, err := pgxpool.New(ctx, "postgres://…")
//	authority, err := pgfence.New(pool, nil)
//	err = authority.Migrate(ctx) // at start; cheap when there is nothing to do
//	grant, err := authority.Claim(ctx, fence.Claim{Tile: tile, Contact: "host-a:7000", ID: fence.NewClaimID()})
//
// # Guarantees
//
// An Authority is a fence.Authority and promises what that promises. A tile is one row. A claim, promotion
// or release is one transaction in one network round trip: the conditional write, then a look at the row
// as it left it (of a set, the look is left out when the write has returned every row). So the loser of a race learns the winner in the round trip it lost in. Losing costs the
// database no lock that outlasts the winner's, and no disk write, unless both were in flight at the same
// moment.
//
// Calls that arrive while Config.Lanes transactions are under way gather, and go together in the next, up
// to Config.SetSize of one kind in set-based statements, each row under its own condition. A call that
// finds a lane free goes at once and alone, so nobody waits for company; a thousand that come at the same
// moment, as when a host dies, take a few round trips. Who is in a set makes no difference to anybody's
// outcome: a set that the server refuses is split into its calls, and a ctx that ends takes its own call out
// and no other.
//
// Each statement names its rows by primary key and carries its conditions itself, so that a database which
// shards the table by tile (Citus: SELECT create_distributed_table('tilefence_tiles', 'tile') and
// create_reference_table('tilefence_tiles_floor') after Migrate) can keep it on one shard; Config.ShardOf
// keeps sets on one. With tables partitioned by PostgreSQL itself this is tested; with Citus and Aurora
// Limitless it is not. List and Retire, which are for operators, ask every shard.
//
// An epoch is as durable as a commit is: leave fsync and synchronous_commit on. Where the database can
// fail over to a replica that is behind, or be restored from a backup, rows can go back in time; Floor in
// each fence.Claim keeps an epoch from being minted twice even then.
//
// # Failures
//
// A *fence.StoreError with fence.ErrNotApplied: the server could not be reached, or it refused and
// rolled back (serialization failure, deadlock, time limit, read-only standby, missing table or rights).
//
// When the connection is lost after the request was sent, nobody knows whether it took effect. The call
// then presents the same request once more, on a connection that has just proved to work: if the first
// copy took effect, the row carries the claim's ID and the second changes nothing. Only when that fails
// too, or ctx has ended, is the error fence.ErrUnknownOutcome; call again with the same fence.Claim. A lost
// copy can still be on its way at that time. It cannot hurt: the epoch it expects is gone by then.
//
// A server that accepts connections and never answers is only noticed when ctx ends: always give ctx a
// deadline, and the pool a connect_timeout. A ctx that ends while a call gathers gives ErrNotApplied, one
// that ends later ErrUnknownOutcome.
//
// # Configuration of the server
//
// Sessions must start transactions at READ COMMITTED, PostgreSQL's default. At a stricter
// default_transaction_isolation every answer stays true, but a loser gets ErrNotApplied, for a
// serialization failure, instead of the winner's name (at SERIALIZABLE even a lookup may get it), and a
// tile without a record cannot be claimed: such a transaction does not see whether the tile's record was
// retired while it waited. All query modes of pgx work, so do poolers (with a mode that does not prepare, if
// they need that); the default one prepares each statement once per connection.
//
// A game server's role needs SELECT, INSERT and UPDATE on the table of tiles, SELECT on its sibling with
// the suffix _floor, and SELECT on tilefence_schema if it calls Migrate. One that calls Retire needs DELETE
// on the first and UPDATE on the second, too.
//
// # Concurrency
//
// An Authority is safe for concurrent use. The pool stays the caller's to size and to close. Up to twice
// Config.Lanes connections are in use at once, half of them for lookups, and for every second that the
// server leaves one without an answer another. There is nothing to close: an Authority has goroutines only
// while calls are in progress.
//
// # Testing
//
// Programs test against memfence or sqlitefence, which pass the same conformance suite
// (fencetest.RunAuthority). This package's own tests need a server; `make test` starts one.
package pgfence
