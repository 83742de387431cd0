package route

import (
	"fmt"
	"sync/atomic"
)

// Rung is where on the ladder an answer came from.
type Rung uint8

// The rungs, from the fastest.
const (
	RungGossip   Rung = 1 // the table
	RungStore    Rung = 2 // the owner hash, just read or remembered
	RungRedirect Rung = 3 // a process that did not own the tile
)

// String returns "gossip", "store" or "redirect".
func (r Rung) String() string {
	switch r {
	case RungGossip:
		return "gossip"
	case RungStore:
		return "store"
	case RungRedirect:
		return "redirect"
	}
	return fmt.Sprintf("rung(%d)", uint8(r))
}

// Stats counts what a router did since it was made.
type Stats struct {
	Gossip, Store, Redirect RungStats

	StoreReads uint64 // of owner hashes, answered or not
	Failures   uint64 // Routes that ended in a *NoRouteError
}

// RungStats counts the answers of one rung.
type RungStats struct {
	Answers uint64 // contacts named
	Stale   uint64 // owners found wrong by Correct; one that many callers met is counted once
}

type counters struct {
	answers, stale  [RungRedirect + 1]atomic.Uint64
	reads, failures atomic.Uint64
}

// Stats returns the counts. They are read one after the other, so they may differ by what is going on.
func (r *Router) Stats() Stats {
	var total Stats
	rungs := [...]*RungStats{RungGossip: &total.Gossip, RungStore: &total.Store, RungRedirect: &total.Redirect}
	for i := range r.shards {
		c := &r.shards[i].counts
		for rung := RungGossip; rung <= RungRedirect; rung++ {
			rungs[rung].Answers += c.answers[rung].Load()
			rungs[rung].Stale += c.stale[rung].Load()
		}
		total.StoreReads += c.reads.Load()
		total.Failures += c.failures.Load()
	}
	return total
}
