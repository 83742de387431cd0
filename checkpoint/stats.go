package checkpoint

import (
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Stats is how a Checkpointer is doing. The counts are since New.
type Stats struct {
	Tiles  int // under care
	Behind int // whose last attempt failed or was skipped

	Unsettled     int           // that have no owner and are not at rest (Config.Unsettled)
	UnsettledTile fence.TileID  // the one of them of which that has been known for the longest
	UnsettledFor  time.Duration // for how long the longest has been known not to be at rest

	// Lag is the longest time any tile has gone without the store being known to hold its latest snapshot, and
	// LagTile is that tile; zero without tiles. It is about one cadence when all is well. It also grows when
	// attempts hang or there are too few of them, which no hook reports.
	Lag     time.Duration
	LagTile fence.TileID

	Durable   uint64 // snapshots found or put into the store
	Bytes     uint64 // of their blobs
	Skipped   uint64 // attempts that met a snapshot which must not be written
	Failed    uint64 // attempts that failed
	Throttled uint64 // of them, for want of the store's capacity: ErrThrottled

	Truncated      uint64 // journals truncated
	TruncateFailed uint64 // attempts at it that failed
}

// Stats returns how the Checkpointer is doing. It takes time in proportion to the number of tiles: call it
// every few seconds.
func (c *Checkpointer) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats(c.counts)
	s.Tiles = len(c.tiles)
	var oldest *tileState
	for _, t := range c.tiles {
		if t.behind {
			s.Behind++
		}
		if t.rest.wakes() {
			s.Unsettled++
			if since := time.Since(t.rest.since); since > s.UnsettledFor || s.Unsettled == 1 {
				s.UnsettledTile, s.UnsettledFor = t.id, since
			}
		}
		if oldest == nil || t.current.Before(oldest.current) {
			oldest = t
		}
	}
	if oldest != nil {
		s.Lag, s.LagTile = time.Since(oldest.current), oldest.id
	}
	return s
}

// counts are the counting fields of Stats, guarded by Checkpointer.mu.
type counts Stats

func (n *counts) durable(bytes int) {
	n.Durable++
	n.Bytes += uint64(bytes)
}

// ended counts the end of an attempt.
func (n *counts) ended(err error) {
	switch {
	case upToDate(err):
	case mustNotWrite(err):
		n.Skipped++
	default:
		n.Failed++
		if errors.Is(err, ErrThrottled) {
			n.Throttled++
		}
	}
}

func (n *counts) truncated(err error) {
	if err != nil {
		n.TruncateFailed++
	} else {
		n.Truncated++
	}
}
