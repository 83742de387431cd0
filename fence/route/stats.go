package route

import (
	"log/slog"
	"sync/atomic"

	"github.com/tilefence/tilefence/internal/enum"
)

// Source is where an answer came from.
type Source uint8

// The sources, in the order in which a Router asks them.
const (
	SourceGossip   Source = 1 // the table
	SourceStore    Source = 2 // the owner hash, just read or remembered
	SourceRedirect Source = 3 // a process that did not own the tile
)

// String returns "gossip", "store" or "redirect".
func (s Source) String() string { return enum.Name(s, "source", "gossip", "store", "redirect") }

// LogValue implements slog.LogValuer with the form of String.
func (s Source) LogValue() slog.Value { return slog.StringValue(s.String()) }

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
	answers, stale  [SourceRedirect + 1]atomic.Uint64
	reads, failures atomic.Uint64
	unread          atomic.Uint64
}

// Stats returns the counts. They are read one after the other, so they may differ by what is going on.
func (r *Router) Stats() Stats {
	var total Stats
	sources := [...]*SourceStats{SourceGossip: &total.Gossip, SourceStore: &total.Store,
		SourceRedirect: &total.Redirect}
	for i := range r.shards {
		c := &r.shards[i].counts
		for from := SourceGossip; from <= SourceRedirect; from++ {
			sources[from].Answers += c.answers[from].Load()
			sources[from].Stale += c.stale[from].Load()
		}
		total.StoreReads += c.reads.Load()
		total.Failures += c.failures.Load()
		total.Unread += c.unread.Load()
	}
	return total
}
