package health

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// ConsumersAfter is for how long a tile serves before a bridge and a checkpointer must have marked its stream: the time
// to list a new tile, to snapshot it (30 s by default) and to copy that, and some more.
const ConsumersAfter = time.Minute

// Consumers notices that nothing forwards or copies what the tiles of a host commit. A deployment whose bridge or
// checkpointer was forgotten works, but for late frames and lost checkpoints.
type Consumers struct {
	Host   *tilehost.Host
	Log    stream.Log
	After  time.Duration // ConsumersAfter, or less in tests
	Silent time.Duration // SilentAfter, or less in tests

	missing atomic.Pointer[Problems] // found last

	last  fence.TileID               // of the page before
	lacks map[fence.TileID][2]string // what the tiles lack, by bridge and checkpointer
	moved map[mark]movement
}

// consumersPage is of how many tiles one look reads the marks at most; a host of 16,384 tiles is looked through in less
// than ConsumersAfter.
const consumersPage = 512

// marksTimeout bounds the reading of a page's marks.
const marksTimeout = 2 * time.Second

// SilentAfter is for how long a consumer may leave its mark on a tile unrenewed, of marks that hold the trim floor for
// lease (tile.Config.MarkLease): half of it, since a bridge renews within that. By default
// that is a minute; a bridge renews every 30 to 40 s, and a checkpointer every 20 s, with nothing to copy too.
func SilentAfter(lease time.Duration) time.Duration { return max(lease/2, ConsumersAfter) }

// Watch looks at a page of the tiles each second until ctx ends.
func (c *Consumers) Watch(ctx context.Context) error {
	for wait.For(ctx, min(c.After/4, time.Second)) {
		c.look(ctx)
	}
	return nil
}

// Add adds what was missing at the last look.
func (c *Consumers) Add(all *Problems) {
	if missing := c.missing.Load(); missing != nil {
		*all = append(*all, *missing...)
	}
}

// look compares the next page of the tiles that have served for a while with the marks on their streams, each tile for
// itself: two deployments that divide each other's tiles leave some without a bridge or a checkpointer, and not all.
func (c *Consumers) look(ctx context.Context) {
	serving := map[fence.TileID]bool{}
	var page []fence.TileID
	for _, t := range c.Host.Status() {
		if t.State == tile.Serving && time.Since(t.Since) > c.After {
			serving[t.Tile] = true
			page = append(page, t.Tile)
		}
	}
	slices.Sort(page)
	if i, _ := slices.BinarySearch(page, c.last+1); i < len(page) {
		page = page[i:]
	}
	page = page[:min(len(page), consumersPage)]
	if len(page) > 0 {
		c.last = page[len(page)-1]
	}
	if c.lacks == nil {
		c.lacks = map[fence.TileID][2]string{}
	}
	maps.DeleteFunc(c.lacks, func(id fence.TileID, _ [2]string) bool { return !serving[id] })
	maps.DeleteFunc(c.moved, func(m mark, _ movement) bool { return !serving[m.tile] })
	bounded, cancel := context.WithTimeout(ctx, marksTimeout)
	defer cancel()
	all, err := c.Log.Marks(bounded, page)
	if err == nil { // else the tiles' own problems say so
		c.compare(all)
	}
	var missing Problems
	for id, lacks := range c.lacks {
		for i, plane := range []string{"delivery", "checkpoints"} {
			if lacks[i] != "" {
				missing.Add(plane, lacks[i], id, 0)
			}
		}
	}
	c.missing.Store(&missing)
}

const (
	noBridge       = "no bridge forwards the batches of tiles: run a BridgeServer, and see that it lists them"
	noCheckpointer = "no checkpointer copies the snapshots of tiles: run a CheckpointServer, and see that it lists them"
)

// compare notes what each of the tiles lacks. A mark is judged by when it was
// seen to be written anew, since its own time is by the store's clock.
func (c *Consumers) compare(all []stream.TileMarks) {
	if c.moved == nil {
		c.moved = map[mark]movement{}
	}
	for _, m := range all {
		if m.Err != nil {
			continue
		}
		var lacks [2]string
		for i, consumer := range []stream.Consumer{stream.BridgeAcked, stream.Checkpointed} {
			found, there := m.Marks[consumer]
			key := mark{m.Tile, consumer}
			last := c.moved[key]
			if there && found.Moved != last.at {
				last = movement{found.Moved, time.Now()}
				c.moved[key] = last
			}
			if !there || time.Since(last.seen) > c.Silent {
				lacks[i] = []string{noBridge, noCheckpointer}[i]
			}
		}
		if delete(c.lacks, m.Tile); lacks != [2]string{} {
			c.lacks[m.Tile] = lacks
		}
	}
}

// mark is a consumer's mark on a tile, and movement when it was last written, by the store's clock and as seen here.
type (
	mark struct {
		tile     fence.TileID
		consumer stream.Consumer
	}
	movement struct {
		at   int64
		seen time.Time
	}
)

// deafAfter is for how long a relay finds batches by comparison alone until that is a problem: a few comparisons.
const deafAfter = 10 * time.Second

// Deaf notices that a relay finds batches, but only by comparing its tiles with the store. The zero value is ready; it
// is not safe for concurrent use.
type Deaf struct {
	frames, caught uint64
	first, last    time.Time // when caught rose since frames has not
}

// Lately is for how long batches were found without frames; zero: frames arrive, or there are no batches.
func (d *Deaf) Lately(frames, caught uint64, now time.Time) time.Duration {
	if frames != d.frames {
		*d = Deaf{frames: frames, caught: caught}
	}
	if caught != d.caught {
		d.caught, d.last = caught, now
		if d.first.IsZero() {
			d.first = now
		}
	}
	if d.last.Sub(d.first) < deafAfter || now.Sub(d.last) > deafAfter {
		return 0
	}
	return now.Sub(d.first)
}
