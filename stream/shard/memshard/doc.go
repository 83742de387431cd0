// Package memshard keeps the book of who holds which shard in memory: for tests, local development and
// processes that share tiles among their own parts.
//
//	leases := memshard.New()
//	member, err := shard.NewMember(leases, "bridge", ranges, handler, nil)
//
// It is the specification of what redisshard does on Redis, and passes the same tests, shardtest.Run. It
// waits for nothing, has no goroutines, and is safe for concurrent use. Nothing survives the process. It
// goes by the wall clock, which under testing/synctest is the bubble's; [NewWithClock] takes another.
package memshard
