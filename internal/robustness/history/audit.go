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
// entry when it first sees it, and every change of a stream's end, of an owner hash and of the authority's row. It does
// not see what comes and goes between two reads.
type Auditor struct {
	recorder  *Recorder
	client    string
	log       stream.Log
	authority fence.Authority // nil: rows are not read

	mu    sync.Mutex
	tiles map[fence.TileID]*audited
}

type audited struct {
	seen  map[fence.Position]bool
	end   fence.Position
	owner fence.Owner
	row   fence.Grant
	asked bool // row has been read
}

// Auditor returns an auditor that reads log and, unless it is nil, a.
func (r *Recorder) Auditor(client string, log stream.Log, a fence.Authority) *Auditor {
	return &Auditor{recorder: r, client: client, log: log, authority: a, tiles: map[fence.TileID]*audited{}}
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

// Look looks at the tiles once. The error is of the first read that failed.
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
	if a.authority == nil {
		return err
	}
	for _, id := range tiles {
		err = errors.Join(err, a.lookRow(ctx, id))
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
	for i := range c.Entries {
		e := &c.Entries[i]
		if !t.seen[e.Position] {
			t.seen[e.Position] = true
			entry := EntryOf(e)
			a.recorder.Append(Record{Client: a.client, Kind: Saw, Tile: c.Tile, Entry: &entry})
		}
	}
	var end fence.Position
	if n := len(c.Entries); n > 0 {
		end = c.Entries[n-1].Position
	}
	if end != t.end {
		t.end = end
		a.recorder.Append(Record{Client: a.client, Kind: SawEnd, Tile: c.Tile, Position: Position(end)})
	}
	changed := c.Owner.Epoch != t.owner.Epoch || c.Owner.Contact != t.owner.Contact
	t.owner = c.Owner
	if changed {
		owner := OwnerOf(c.Owner)
		a.recorder.Append(Record{Client: a.client, Kind: SawOwner, Tile: c.Tile, Owner: &owner, Asked: asked})
	}
}

func (a *Auditor) lookRow(ctx context.Context, id fence.TileID) error {
	g, err := a.authority.Lookup(ctx, id)
	if err != nil && !errors.Is(err, fence.ErrNeverOwned) {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tile(id)
	if !t.asked || t.row != g {
		t.row, t.asked = g, true
		row := GrantOf(g)
		a.recorder.Append(Record{Client: a.client, Kind: SawRow, Tile: id, Row: &row})
	}
	return nil
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
	if end := a.tile(id).end.Seq; end > auditOverlap {
		return end - auditOverlap
	}
	return 0
}
