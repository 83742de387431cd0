//go:build linux

package benchmark

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/viewcachetest"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream"
)

// plainViews are views under one key a tile, as caches have them that do not know of versions: with a time to live, or
// written behind the commits.
type plainViews struct {
	client *redis.Client
	log    stream.Log
	ttl    time.Duration // zero: a value stays until it is written over
}

var _ relay.Views = (*plainViews)(nil)

func (p *plainViews) key(tile fence.TileID) string { return "plain:" + tile.String() }

// View implements relay.Views: what is there, or else what this relay reads and stores.
func (p *plainViews) View(ctx context.Context, tile fence.TileID, _ fence.Position) (v viewcache.View, err error) {
	b, err := p.client.Get(ctx, p.key(tile)).Bytes()
	if err == nil {
		return v, gob.NewDecoder(bytes.NewReader(b)).Decode(&v)
	}
	if !errors.Is(err, redis.Nil) {
		return v, viewcache.ErrNotShared
	}
	if v, err = p.read(ctx, tile); err != nil {
		return v, err
	}
	return v, p.store(ctx, tile, &v)
}

// read reads the log.
func (p *plainViews) read(ctx context.Context, tile fence.TileID) (v viewcache.View, err error) {
	rec, err := stream.Recover(ctx, p.log, tile)
	if err == nil {
		err = stream.WatchedSnapshot(tile, &rec.Snapshot)
	}
	if err != nil {
		return v, err
	}
	for i := range rec.Entries {
		rec.Entries[i] = rec.Entries[i].Watched(fence.AreaSet{})
	}
	v.Recovery = rec
	return v, nil
}

func (p *plainViews) store(ctx context.Context, tile fence.TileID, v *viewcache.View) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(v); err != nil {
		return err
	}
	return p.client.Set(ctx, p.key(tile), b.Bytes(), p.ttl).Err()
}

// Tail implements relay.Views: the relay reads the log itself.
func (p *plainViews) Tail(context.Context, fence.TileID, fence.Position, fence.Position) (viewcache.View, error) {
	return viewcache.View{}, viewcache.ErrNotShared
}

// Forget implements relay.Views.
func (p *plainViews) Forget(ctx context.Context, tile fence.TileID) { p.client.Del(ctx, p.key(tile)) }

// writeBehind folds batches into the plain views a little after they were committed, in one process for all relays.
type writeBehind struct {
	*plainViews
	every time.Duration

	mu      sync.Mutex
	views   map[fence.TileID]*viewcache.View
	changed map[fence.TileID]bool
}

// note takes a batch that was committed.
func (w *writeBehind) note(e *fence.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed[e.Tile] = true
	if v := w.views[e.Tile]; v != nil && v.Position == e.Prev {
		v.Entries, v.Position = append(v.Entries, e.Watched(fence.AreaSet{})), e.Position
		return
	}
	delete(w.views, e.Tile) // something is missing: it has to be read
}

// run writes until ctx ends.
func (w *writeBehind) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		changed := slices.Collect(maps.Keys(w.changed))
		clear(w.changed)
		w.mu.Unlock()
		for _, tile := range changed {
			w.write(ctx, tile)
		}
		time.Sleep(w.every)
	}
}

func (w *writeBehind) write(ctx context.Context, tile fence.TileID) {
	w.mu.Lock()
	have := w.views[tile]
	var v viewcache.View
	if have != nil {
		v = *have
	}
	w.mu.Unlock()
	if have == nil {
		var err error
		if v, err = w.read(ctx, tile); err != nil {
			return
		}
		own := v
		w.mu.Lock()
		w.views[tile] = &own
		w.mu.Unlock()
	}
	_ = w.store(ctx, tile, &v) // the next one has it too
}

// audited are the views of one relay, each of which is compared with what was committed.
type audited struct {
	relay.Views
	s *viewStorm

	mu   sync.Mutex
	last map[fence.TileID]fence.Position
}

// View implements relay.Views.
func (a *audited) View(ctx context.Context, tile fence.TileID, need fence.Position) (viewcache.View, error) {
	must := a.s.world.HeadAt(tile, time.Now().Add(-outdatedAfter))
	v, err := a.Views.View(ctx, tile, need)
	if err != nil {
		return v, err
	}
	a.s.views.Add(1)
	if err := a.s.world.Audit(tile, &v); err != nil {
		a.s.wrong.Add(1)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if v.Position.Seq < a.last[tile].Seq {
		a.s.wrong.Add(1) // it regresses
	}
	a.last[tile] = v.Position
	if v.Position.Seq < must.Seq {
		a.s.outdated.Add(1)
	}
	return v, nil
}

// outdatedAfter is for how long a batch must have been committed that a view has to have: longer than a version is
// fresh, and than the interval of the writer behind.
const outdatedAfter = 1500 * time.Millisecond

// coldLog counts the cold reads of the tiles, by the position to which they lead.
type coldLog struct {
	viewcachetest.Log
	mu    sync.Mutex
	open  map[fence.TileID]int                    // calls since the last position
	reads map[fence.TileID]map[fence.Position]int // calls for each
	coldFigures
}

// coldFigures are cold reads: calls in all, the most for one tile and version, and reads that led to where another one
// had led before.
type coldFigures struct{ calls, most, again int }

func newColdLog(log stream.Log) *coldLog {
	return &coldLog{Log: viewcachetest.Log{Log: log}, open: map[fence.TileID]int{},
		reads: map[fence.TileID]map[fence.Position]int{}}
}

func (l *coldLog) note(tile fence.TileID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[tile]++
}

// Snapshot implements stream.Log.
func (l *coldLog) Snapshot(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	l.note(tile)
	return l.Log.Snapshot(ctx, tile)
}

// Last implements stream.Log.
func (l *coldLog) Last(ctx context.Context, tile fence.TileID) (fence.Position, error) {
	l.note(tile)
	return l.Log.Last(ctx, tile)
}

// Read implements stream.Log. Comparisons, which read many tiles with a limit, are not cold reads.
func (l *coldLog) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	chunks, err := l.Log.Log.Read(ctx, cursors)
	if err != nil || len(cursors) > 1 || cursors[0].Limit > 0 {
		return chunks, err
	}
	tile, to := cursors[0].Tile, fence.Position{Seq: cursors[0].After}
	if n := len(chunks[0].Entries); n > 0 {
		to.Seq = chunks[0].Entries[n-1].Seq
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reads[tile] == nil {
		l.reads[tile] = map[fence.Position]int{}
	}
	if l.reads[tile][to] > 0 {
		l.again++
	}
	calls := 1 + l.open[tile]
	l.reads[tile][to] += calls
	l.open[tile] = 0
	l.calls, l.most = l.calls+calls, max(l.most, l.reads[tile][to])
	return chunks, err
}

// figures are the cold reads since the last call of it.
func (l *coldLog) figures() (f coldFigures) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, l.coldFigures = l.coldFigures, f
	return f
}
