package match

import "time"

// Hooks are called as things happen, for metrics. Any may be nil. They run on the goroutine of the worker or
// supervisor, at the same time from several, and must not block.
type Hooks struct {
	Looked    func(LookInfo)     // a worker has compared a claim
	Finished  func(FinishInfo)   // a match was allocated and published, or dissolved
	Reclaimed func(ReclaimInfo)  // a supervisor has looked at a shard
	Failed    func(FailInfo)     // a call of the store or the allocator failed; it is tried again
	Stale     func(shard string) // a worker was presumed dead; it goes on under a new epoch
}

// LookInfo describes one claim of a worker.
type LookInfo struct {
	Shard    string
	Claimed  int           // tickets claimed
	Matches  int           // matches recorded of them
	Released int           // tickets that went back
	Took     time.Duration // from the claim to the release
}

// FinishInfo describes a recorded match that ended in an assignment or was dissolved.
type FinishInfo struct {
	Match      Match
	Assignment Assignment // if Err is nil
	Err        error      // matches ErrNoSeat: dissolved
}

// ReclaimInfo describes one look of a supervisor at one shard.
type ReclaimInfo struct {
	Shard    string
	Returned int // tickets of dead workers
	TimedOut int // tickets past their deadline
	Pending  int // matches that their worker did not finish
	Lapsed   int // tickets that did not take their seat
	Took     time.Duration
}

// FailInfo describes a failed call.
type FailInfo struct {
	Shard string
	Op    string // "claim", "record", "allocate", …
	Err   error
}
