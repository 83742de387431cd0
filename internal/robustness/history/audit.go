package history

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// auditOverlap is how many sequences before the last known one an auditor reads again, to notice entries
// that were replaced.
const auditOverlap = 256

// Auditor reads tiles all the time, so that what is trimmed or lost in a failover is still known. It records every
// entry when it first sees it, and every change of an owner hash. It does not see what comes and goes between two
// reads.
type Auditor struct {
	recorder *Recorder
	client   string
	log      stream.Log

	mu    sync.Mutex
	tiles map[fence.TileID]*audited
}

type audited struct {
	seen  map[fence.Position]bool
	end   fence.Seq
	owner fence.Owner
}

// Auditor returns an auditor that reads log.
func (r *Recorder) Auditor(client string, log stream.Log) *Auditor {
	return &Auditor{recorder: r, client: client, log: log, tiles: map[fence.TileID]*audited{}}
}

// Run looks at the tiles every interval until ctx ends. Reads that fail are repeated.
func (a *Auditor) Run(ctx context.Context, tiles []fence.TileID, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		_ = a.Look(ctx, tiles) // the next look comes soon
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// Look looks at the tiles once. The error joins those of the reads that failed.
func (a *Auditor) Look(ctx context.Context, tiles []fence.TileID) error {
	asked := a.recorder.clock()
	cursors := make([]stream.Cursor, len(tiles))
	for i, id := range tiles {
		cursors[i] = stream.Cursor{Tile: id, After: a.from(id), Limit: 4 * auditOverlap}
	}
	chunks, err := a.log.Read(ctx, cursors)
	for i := range chunks {
		err = errors.Join(err, chunks[i].Err)
		if chunks[i].Err == nil {
			a.observe(&chunks[i], asked)
		}
	}
	return err
}

// Observe records what a chunk shows that was not known. A simulation that sees every write calls it by
// itself.
func (a *Auditor) Observe(c *stream.Chunk) { a.observe(c, 0) }

func (a *Auditor) observe(c *stream.Chunk, asked int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tile(c.Tile)
	t.end = 0
	for i := range c.Entries {
		e := &c.Entries[i]
		t.end = e.Seq
		if !t.seen[e.Position] {
			t.seen[e.Position] = true
			entry := EntryOf(e)
			a.recorder.Append(Record{Client: a.client, Kind: Saw, Tile: c.Tile, Entry: &entry})
		}
	}
	changed := c.Owner.Epoch != t.owner.Epoch || c.Owner.Contact != t.owner.Contact
	t.owner = c.Owner
	if changed {
		owner := OwnerOf(c.Owner)
		a.recorder.Append(Record{Client: a.client, Kind: SawOwner, Tile: c.Tile, Owner: &owner, Asked: asked})
	}
}

func (a *Auditor) tile(id fence.TileID) *audited {
	t := a.tiles[id]
	if t == nil {
		t = &audited{seen: map[fence.Position]bool{}}
		a.tiles[id] = t
	}
	return t
}

// from is where reading begins: some way before the last known end, or, where a stream has shrunk, at its
// beginning.
func (a *Auditor) from(id fence.TileID) fence.Seq {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.tile(id).end, auditOverlap) - auditOverlap
}
