// Package sqlitecheckpoint keeps checkpoints in an SQLite database: a file on a developer's machine or a small
// single-host deployment, or memory. It is a checkpoint.Store and a checkpoint.JournalStore, pure Go, without cgo.
//
//	store, err := sqlitecheckpoint.Open(ctx, "checkpoints.db") // or ":memory:"
//	defer store.Close()
//
// # Guarantees and failures
//
// Each write is one transaction that checks its own condition: that a checkpoint never regresses, that only the epoch
// a journal is sealed for may append to it, and only what follows its end. So several processes may share a file.
// A file is in write-ahead mode and synchronised at every commit: a Put or an Append that has returned
// survives a power failure, on storage that keeps its promises. ":memory:" is a database of this Store's own
// that ends with Close.
//
// A file that stays locked for longer than 10 s, or than ctx allows, is a *fence.StoreError with
// fence.ErrNotApplied. Other failures of a write are fence.ErrUnknownOutcome: make the same call again.
//
// # Concurrency and tests
//
// A Store is safe for concurrent use; SQLite lets one writer at a time proceed. In tests prefer
// checkpoint/memcheckpoint, or ":memory:" where SQL matters.
package sqlitecheckpoint
