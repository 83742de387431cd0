package viewcache

import (
	"context"
	"sync/atomic"
)

// Stats is what a Cache has done since it was made. The values are read one after another.
type Stats struct {
	Hits      uint64 // views and tails handed out as they were stored
	Stale     uint64 // versions handed out while another relay read a newer one
	Rebuilds  uint64 // reads of the log under a tile's lock
	Whole     uint64 // of them, those that read snapshot and tail; the others read what follows a version
	LogReads  uint64 // calls to the log that the rebuilds took
	Waits     uint64 // times another relay's rebuild was waited for
	NotShared uint64 // times the caller was sent to the log: the store of views failed, or a wait took too long
	Older     uint64 // rebuilds that came later than a newer one
	LocksLost uint64 // locks that had ended when they were to be renewed: this process was paused, or the store flushed
	Missing   uint64 // versions that lacked a part
	Corrupt   uint64 // versions with damaged or foreign bytes, or without the tag of a key: refused and removed
	TooLarge  uint64 // versions over a quarter of their group's share of the budget
	Failures  uint64 // calls to the store of views that failed
}

// counters are the running totals behind Stats.
type counters struct {
	hits, stale, rebuilds, whole, logReads, waits, notShared atomic.Uint64
	older, locksLost, missing, corrupt, tooLarge, failures   atomic.Uint64
}

// Stats returns the figures. It may be called at any time. What the store holds is Usage.
func (c *Cache) Stats() Stats {
	n := &c.count
	return Stats{
		Hits: n.hits.Load(), Stale: n.stale.Load(), Rebuilds: n.rebuilds.Load(), Whole: n.whole.Load(),
		LogReads: n.logReads.Load(), Waits: n.waits.Load(), NotShared: n.notShared.Load(), Older: n.older.Load(),
		LocksLost: n.locksLost.Load(), Missing: n.missing.Load(), Corrupt: n.corrupt.Load(),
		TooLarge: n.tooLarge.Load(), Failures: n.failures.Load(),
	}
}

// Usage is what the store of views holds, and what it has evicted since it was empty.
type Usage struct {
	Bytes   int64 // of values, with 256 more for each
	Tiles   int   // that have a version
	Old     int   // values of superseded versions within their grace
	Evicted int   // values removed for want of room
}

// Usage asks the store what it holds now.
func (c *Cache) Usage(ctx context.Context) (Usage, error) {
	u, err := c.store.Usage(ctx)
	return Usage(u), err
}
