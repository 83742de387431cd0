// Package sqlitefence is the epoch authority in an SQLite file, or in memory: for tests, local
// development, and deployments whose game servers all run on one machine.
//
//	authority, err := sqlitefence.Open(ctx, "epochs.db", nil)
//	defer authority.Close()
//	grant, err := authority.Claim(ctx, fence.Claim{Tile: tile, Contact: "host-a:7000", ID: fence.NewClaimID()})
//
// SQLite is compiled in, without cgo.
//
// # Guarantees
//
// An Authority is a fence.Authority, with statements like those of package pgfence. Several processes on one
// machine may open the same file, which must be on a local disk: network file systems do not lock reliably. All
// of them must run a release that knows retirement before one calls Retire.
//
// A grant is on the disk before it is returned (write-ahead log, synchronous=FULL).
//
// # Failures
//
// A *fence.StoreError with fence.ErrNotApplied: another process kept the file locked for longer than
// 10 s or than ctx allowed, the disk is full, the Authority is closed. With
// fence.ErrUnknownOutcome: the commit itself failed, as it does when the disk does.
//
// A call notices that ctx ended while it waits for its turn; within some milliseconds if it waits for another
// process. A transaction that has begun is completed.
//
// # Concurrency
//
// An Authority is safe for concurrent use. It has one connection, and calls take turns: SQLite has one
// writer at a time anyway, and a database in memory lives in its connection.
//
// # Testing
//
// Open(ctx, ":memory:", nil) gives each test an authority of its own; memfence has one that starts
// faster still. The conformance suite is fencetest.RunAuthority.
package sqlitefence
