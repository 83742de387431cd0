package checkpoint_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
)

const tile fence.TileID = 0x85283473fffffff

// world is a coordination store, a durable store that can be made to fail, and a record of what the
// Checkpointers did.
type world struct {
	t      testing.TB
	fence  *memfence.Store
	log    *watchedLog
	store  *flakyStore
	owners map[fence.TileID]*owner

	mu      sync.Mutex
	durable []checkpoint.DurableInfo
	skipped []checkpoint.SkippedInfo
	failed  []checkpoint.FailedInfo
	drained []checkpoint.DrainedInfo

	truncated []checkpoint.TruncatedInfo
}

// owner is where a tile's writer is.
type owner struct {
	epoch fence.Epoch
	at    fence.Position
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, fence: memfence.New(), owners: map[fence.TileID]*owner{}}
	w.store = &flakyStore{Store: memcheckpoint.New()}
	log := memstream.New(w.fence)
	w.log = &watchedLog{Log: log, Inspector: log, w: w}
	return w
}

// hooks returns Hooks that record.
func (w *world) hooks() checkpoint.Hooks {
	return checkpoint.Hooks{
		Durable: func(i checkpoint.DurableInfo) { record(w, &w.durable, i) },
		Skipped: func(i checkpoint.SkippedInfo) { record(w, &w.skipped, i) },
		Failed:  func(i checkpoint.FailedInfo) { record(w, &w.failed, i) },
		Drained: func(i checkpoint.DrainedInfo) { record(w, &w.drained, i) },
	}
}

func record[T any](w *world, list *[]T, v T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*list = append(*list, v)
}

// seen returns what was recorded so far.
func seen[T any](w *world, list *[]T) []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]T(nil), *list...)
}

// checkpointer returns a Checkpointer of this world.
func (w *world) checkpointer(tiles []fence.TileID, cfg *checkpoint.Config) *checkpoint.Checkpointer {
	w.t.Helper()
	return w.journaled(nil, tiles, cfg)
}

// journaled returns a Checkpointer that truncates a journal.
func (w *world) journaled(
	j checkpoint.JournalStore, tiles []fence.TileID, cfg *checkpoint.Config,
) *checkpoint.Checkpointer {
	w.t.Helper()
	var c checkpoint.Config
	if cfg != nil {
		c = *cfg
	}
	c.Hooks = w.hooks()
	c.OnTruncated(func(i checkpoint.TruncatedInfo) { record(w, &w.truncated, i) })
	cp, err := checkpoint.New(w.log, w.store, j, tiles, &c)
	require.NoError(w.t, err)
	return cp
}

// run runs c until the test calls stop, which waits for it and for a nil error.
func (w *world) run(c *checkpoint.Checkpointer) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		w.t.Helper()
		cancel()
		require.NoError(w.t, <-done)
	}
}

// play commits n batches to a tile and saves a snapshot at the last one.
func (w *world) play(tile fence.TileID, n int) fence.Snapshot {
	w.t.Helper()
	o := w.commit(tile, n)
	require.NoError(w.t, w.fence.SaveSnapshot(context.Background(), fence.SnapshotWrite{Tile: tile, Position: o.at,
		Tick: fence.Tick(o.at.Seq), Blob: fmt.Appendf(nil, "tile %s at %s", tile, o.at)}))
	s, found, err := w.log.Log.Snapshot(context.Background(), tile)
	require.NoError(w.t, err)
	require.True(w.t, found)
	return s
}

// commit commits n batches to a tile.
func (w *world) commit(tile fence.TileID, n int) *owner {
	w.t.Helper()
	o := w.owners[tile]
	if o == nil {
		o = &owner{epoch: 1}
		w.owners[tile] = o
	}
	for range n {
		r, err := w.fence.Commit(context.Background(), fence.Commit{Tile: tile, Epoch: o.epoch,
			Contact: "10.0.0.1:7000", Prev: o.at,
			Tick: fence.Tick(o.at.Seq + 1), Payload: []byte("e"), Install: true})
		require.NoError(w.t, err)
		o.at = r.Position
	}
	return o
}

// promote gives a tile's next batches to an owner with a higher epoch.
func (w *world) promote(tile fence.TileID) { w.owners[tile].epoch++ }

// stored returns the position of a tile's checkpoint, zero if there is none.
func (w *world) stored(tile fence.TileID) fence.Position {
	w.t.Helper()
	s, _, err := w.store.Store.Get(context.Background(), tile)
	require.NoError(w.t, err)
	return s.Position
}

// marked returns a tile's watermark.
func (w *world) marked(tile fence.TileID) stream.Mark {
	w.t.Helper()
	m, err := w.log.Marks(context.Background(), []fence.TileID{tile})
	require.NoError(w.t, err)
	return m[0].Marks[stream.Checkpointed]
}

// flakyStore calls put, if set, in place of the store's Put.
type flakyStore struct {
	checkpoint.Store
	mu  sync.Mutex
	put func(ctx context.Context, tile fence.TileID, next func() error) error
}

func (f *flakyStore) set(put func(ctx context.Context, tile fence.TileID, next func() error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put = put
}

// Put implements checkpoint.Store.
func (f *flakyStore) Put(ctx context.Context, tile fence.TileID, s fence.Snapshot) error {
	f.mu.Lock()
	put := f.put
	f.mu.Unlock()
	if put == nil {
		return f.Store.Put(ctx, tile, s)
	}
	return put(ctx, tile, func() error { return f.Store.Put(ctx, tile, s) })
}

// stall hangs for some tiles until the attempt's context ends.
func stall(stalled func(fence.TileID) bool) func(context.Context, fence.TileID, func() error) error {
	return func(ctx context.Context, tile fence.TileID, next func() error) error {
		if !stalled(tile) {
			return next()
		}
		<-ctx.Done()
		return &fence.StoreError{Op: "checkpoint put", Tile: tile, Outcome: fence.ErrUnknownOutcome,
			Err: context.Cause(ctx)}
	}
}

// watchedLog counts, and sees that no watermark is ahead of what is durable.
type watchedLog struct {
	stream.Log
	stream.Inspector
	w *world

	mu        sync.Mutex
	snapshots int
	reads     int
	lasts     int
	stats     int
	marks     int
	snapshot  func(s *fence.Snapshot) error // may change what is read, or fail
	mark      error
	read      error
	stat      error // of each tile, as when an access list does not allow it
}

func (l *watchedLog) count(n *int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	*n++
	return l.read
}

// Read implements stream.Log.
func (l *watchedLog) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	if err := l.count(&l.reads); err != nil {
		return nil, err
	}
	return l.Log.Read(ctx, cursors)
}

// Last implements stream.Log.
func (l *watchedLog) Last(ctx context.Context, tile fence.TileID) (fence.Position, error) {
	if err := l.count(&l.lasts); err != nil {
		return fence.Position{}, err
	}
	return l.Log.Last(ctx, tile)
}

// Stat implements stream.Inspector.
func (l *watchedLog) Stat(ctx context.Context, tiles []fence.TileID) ([]stream.Stat, error) {
	if err := l.count(&l.stats); err != nil {
		return nil, err
	}
	stats, err := l.Inspector.Stat(ctx, tiles)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range stats {
		if l.stat != nil {
			stats[i] = stream.Stat{Tile: stats[i].Tile, Err: l.stat}
		}
	}
	return stats, err
}

// Snapshot implements stream.Log.
func (l *watchedLog) Snapshot(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	s, found, err := l.Log.Snapshot(ctx, tile)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.snapshots++
	if found && l.snapshot != nil {
		err = l.snapshot(&s)
	}
	return s, found, err
}

// Mark implements stream.Log.
func (l *watchedLog) Mark(ctx context.Context, writes []stream.MarkWrite) []error {
	for _, w := range writes {
		if w.Consumer != stream.Checkpointed {
			l.w.t.Errorf("moved the watermark of %q", w.Consumer)
		}
		if stored := l.w.stored(w.Tile); w.Seq > stored.Seq {
			l.w.t.Errorf("tile %s: marked %d, durable is %s", w.Tile, w.Seq, stored)
		}
	}
	l.mu.Lock()
	l.marks++
	err := l.mark
	l.mu.Unlock()
	if err != nil {
		return slices.Repeat([]error{err}, len(writes))
	}
	return l.Log.Mark(ctx, writes)
}

func (l *watchedLog) change(f func(*watchedLog)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

// tiles returns n tiles.
func tiles(n int) []fence.TileID {
	ids := make([]fence.TileID, n)
	for i := range ids {
		ids[i] = tile + fence.TileID(i)
	}
	return ids
}

// sleep lets fake time pass and everything that is then due happen.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
