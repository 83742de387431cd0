package route

import "sync/atomic"

// source is where an answer came from.
type source uint8

// The sources, in the order in which a Router asks them.
const (
	sourceGossip   source = 1 // the table
	sourceStore    source = 2 // the owner hash, just read or remembered
	sourceRedirect source = 3 // a process that did not own the tile
)

// Stats counts what a router did since it was made.
type Stats struct {
	Gossip, Store, Redirect SourceStats

	StoreReads uint64 // of owner hashes, answered or not
	Failures   uint64 // Routes that ended in a *NoRouteError
	Unread     uint64 // of those, because the store did not answer
}

// SourceStats counts the answers of one source.
type SourceStats struct {
	Answers uint64 // contacts named
	Stale   uint64 // owners found wrong by Correct; one that many callers met is counted once
}

type counters struct {
	answers, stale  [sourceRedirect + 1]atomic.Uint64
	reads, failures atomic.Uint64
	unread          atomic.Uint64
}

// Stats returns the counts. They are read one after the other, so they may differ by what is going on.
func (r *Router) Stats() Stats {
	var total Stats
	sources := [...]*SourceStats{sourceGossip: &total.Gossip, sourceStore: &total.Store,
		sourceRedirect: &total.Redirect}
	for i := range r.shards {
		c := &r.shards[i].counts
		for from := sourceGossip; from <= sourceRedirect; from++ {
			sources[from].Answers += c.answers[from].Load()
			sources[from].Stale += c.stale[from].Load()
		}
		total.StoreReads += c.reads.Load()
		total.Failures += c.failures.Load()
		total.Unread += c.unread.Load()
	}
	return total
}
