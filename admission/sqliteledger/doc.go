// Package sqliteledger keeps the admission ledger in a SQLite database: a file for one host, or memory for tests
// and local development. It needs no cgo.
//
//	store, err := sqliteledger.Open(ctx, "ledger.db")
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	ledger, err := admission.New(store, nil)
//
// # Guarantees
//
// Each operation is one immediate transaction, so all the ledger's guarantees hold, also among several
// processes on one file of one host. A file is written with synchronous=FULL: what was answered survives a
// power cut, as far as the disk keeps its word. ":memory:" survives
// nothing and belongs to the Store that opened it.
//
// # Failures
//
// An operation that cannot get the database within 10 s, or before ctx ends, is a *fence.StoreError with
// fence.ErrNotApplied. One that fails at its commit is fence.ErrUnknownOutcome; present it again. A context
// that ends before the transaction has begun stops it; one that ends later does not, since the rest takes
// microseconds and interrupting it would only make the outcome unknown.
//
// # Concurrency
//
// A Store is safe for concurrent use. SQLite has one writer at a time, so operations run one after the
// other: about a thousand durable admissions a second, many more in memory. For more, use dynamoledger.
package sqliteledger
