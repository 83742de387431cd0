package check

import "sync/atomic"

var undecided atomic.Int64

// Undecided is how many linearizability checks of this process ran out of time. A campaign reports it beside
// the violations: a check that decides nothing finds nothing.
func Undecided() int64 { return undecided.Load() }
