package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/memstream"
)

func TestMain(m *testing.M) {
	if file, is := os.LookupEnv(envProducer); is {
		if err := produce(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

var errDown = errors.New("down")

// rig is a store with a bridge behind it, whose log and publisher can be watched and broken.
type rig struct {
	t     testing.TB
	store *memfence.Store
	log   *watchedLog
	pub   *watchedPublisher
	heads map[fence.TileID]fence.Position   // of each tile's history
	past  map[fence.TileID][]fence.Position // everything ever committed
	ticks fence.Tick
}

func newRig(t testing.TB) *rig {
	store := memfence.New()
	return &rig{t: t, store: store, heads: map[fence.TileID]fence.Position{},
		past: map[fence.TileID][]fence.Position{},
		log:  &watchedLog{Log: memstream.New(store)}, pub: &watchedPublisher{}}
}

// run starts a bridge. The function it returns ends it and fails the test if Run fails.
func (r *rig) run(cfg *bridge.Config, tiles ...fence.TileID) (b *bridge.Bridge, stop func()) {
	r.t.Helper()
	return r.hinted(nil, cfg, tiles...)
}

// hinted starts a bridge with wake hints.
func (r *rig) hinted(
	hints fanout.HintSubscriber, cfg *bridge.Config, tiles ...fence.TileID,
) (b *bridge.Bridge, stop func()) {
	r.t.Helper()
	b, err := bridge.New(r.log, r.pub, hints, tiles, cfg)
	require.NoError(r.t, err)
	return b, r.start(b)
}

func (r *rig) start(b *bridge.Bridge) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(r.t, <-ended)
		})
	}
	r.t.Cleanup(stop)
	return stop
}

// commit appends n batches under epoch, installing it if it is new.
func (r *rig) commit(tile fence.TileID, epoch fence.Epoch, n int) {
	r.t.Helper()
	for range n {
		payload, _, err := (&stream.Batch{Events: [][]byte{[]byte("event")}}).Encode()
		require.NoError(r.t, err)
		r.commitPayload(tile, epoch, payload)
	}
}

func (r *rig) commitPayload(tile fence.TileID, epoch fence.Epoch, payload []byte) {
	r.t.Helper()
	prev := r.heads[tile]
	r.ticks++
	receipt, err := r.store.Commit(context.Background(), fence.Commit{Tile: tile, Epoch: epoch, Contact: "owner",
		Prev: prev, Tick: r.ticks, At: time.Now(), Payload: payload, Install: epoch != prev.Epoch})
	require.NoError(r.t, err)
	r.heads[tile] = receipt.Position
	r.past[tile] = append(r.past[tile], receipt.Position)
}

// rebase puts a marker entry under a new epoch, that many sequences ahead.
func (r *rig) rebase(tile fence.TileID, epoch fence.Epoch, jump fence.Seq) {
	r.t.Helper()
	r.ticks++
	receipt, err := r.store.Rebase(context.Background(), fence.Rebase{Tile: tile, Epoch: epoch, Contact: "owner",
		Seq: r.heads[tile].Seq + jump, Tick: r.ticks, At: time.Now(), Blob: []byte("state")})
	require.NoError(r.t, err)
	r.heads[tile] = receipt.Position
	r.past[tile] = append(r.past[tile], receipt.Position)
}

// mark reads one of a tile's watermarks.
func (r *rig) mark(tile fence.TileID, c stream.Consumer) (stream.Mark, bool) {
	r.t.Helper()
	marks, err := r.log.Log.Marks(context.Background(), []fence.TileID{tile})
	require.NoError(r.t, err)
	m, ok := marks[0].Marks[c]
	return m, ok
}

// watchedLog records reads and breaks on request. Set the functions before Run.
type watchedLog struct {
	stream.Log
	before func(op bridge.Op, tile fence.TileID) error // of every call; tile is zero for reads
	alter  func(*stream.Chunk)                         // of every chunk read

	mu    sync.Mutex
	reads []readCall
	marks []markCall

	markCalls, resumeCalls int
}

type readCall struct {
	at      time.Time
	cursors []stream.Cursor
}

type markCall struct {
	at   time.Time
	tile fence.TileID
	c    stream.Consumer
	seq  fence.Seq
}

// breakOps makes calls of these kinds fail from now on, and all others succeed.
func (l *watchedLog) breakOps(ops ...bridge.Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before = func(op bridge.Op, _ fence.TileID) error {
		if slices.Contains(ops, op) {
			return errDown
		}
		return nil
	}
}

func (l *watchedLog) broken(op bridge.Op, tile fence.TileID) error {
	l.mu.Lock()
	before := l.before
	l.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(op, tile)
}

func (l *watchedLog) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	l.mu.Lock()
	l.reads = append(l.reads, readCall{at: time.Now(), cursors: slices.Clone(cursors)})
	l.mu.Unlock()
	if err := l.broken(bridge.OpRead, 0); err != nil {
		return nil, err
	}
	chunks, err := l.Log.Read(ctx, cursors)
	if err == nil && l.alter != nil {
		for i := range chunks {
			l.alter(&chunks[i])
		}
	}
	return chunks, err
}

func (l *watchedLog) Marks(ctx context.Context, tiles []fence.TileID) ([]stream.TileMarks, error) {
	l.mu.Lock()
	l.resumeCalls++
	l.mu.Unlock()
	broken := l.brokenOf(bridge.OpResume, tiles)
	all, err := l.Log.Marks(context.WithoutCancel(ctx), tiles) // the other nodes have answered before
	for i := range all {
		if err := broken[tiles[i]]; err != nil {
			all[i] = stream.TileMarks{Tile: tiles[i], Err: err}
		}
	}
	return all, err
}

// brokenOf asks for many tiles at once, each on a node of its own.
func (l *watchedLog) brokenOf(op bridge.Op, tiles []fence.TileID) map[fence.TileID]error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := map[fence.TileID]error{}
	for _, tile := range tiles {
		wg.Go(func() {
			if err := l.broken(op, tile); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs[tile] = err
			}
		})
	}
	wg.Wait()
	return errs
}

func (l *watchedLog) Mark(ctx context.Context, writes []stream.MarkWrite) []error {
	began := time.Now()
	ctx = context.WithoutCancel(ctx) // the other nodes have answered before
	l.mu.Lock()
	l.markCalls++
	l.mu.Unlock()
	var tiles []fence.TileID
	for _, w := range writes {
		if n := len(tiles); n == 0 || tiles[n-1] != w.Tile {
			tiles = append(tiles, w.Tile)
		}
	}
	broken := l.brokenOf(bridge.OpMark, tiles)
	errs := make([]error, len(writes))
	failed := false
	for i, w := range writes {
		if errs[i] = broken[w.Tile]; errs[i] == nil {
			errs[i] = stream.MarkOne(ctx, l.Log, w)
			l.mu.Lock()
			l.marks = append(l.marks, markCall{at: began, tile: w.Tile, c: w.Consumer, seq: w.Seq})
			l.mu.Unlock()
		}
		failed = failed || errs[i] != nil
	}
	if !failed {
		return nil
	}
	return errs
}

func (l *watchedLog) DeadLetter(ctx context.Context, p stream.Poison) error {
	if err := l.broken(bridge.OpDeadLetter, p.Tile); err != nil {
		return err
	}
	return l.Log.DeadLetter(ctx, p)
}

func (l *watchedLog) takeReads() []readCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	reads := l.reads
	l.reads = nil
	return reads
}

func (l *watchedLog) takeMarks() []markCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	marks := l.marks
	l.marks = nil
	return marks
}

// watchedPublisher records what is published, passes it on if there is a next, and breaks on request.
type watchedPublisher struct {
	next          fanout.Publisher
	keepNoPayload bool

	mu     sync.Mutex
	fail   func(ctx context.Context, m []fanout.Message) (sent int, err error) // sent -1: all is well
	calls  []int                                                               // messages of each call
	frames []received
}

type received struct {
	fence.Entry
	at time.Time
}

func (p *watchedPublisher) set(fail func(context.Context, []fanout.Message) (int, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = fail
}

func (p *watchedPublisher) Publish(ctx context.Context, messages []fanout.Message) (int, error) {
	p.mu.Lock()
	fail := p.fail
	p.calls = append(p.calls, len(messages))
	p.mu.Unlock()
	sent, err := len(messages), error(nil)
	handed := func(i int) bool { return i < sent }
	if fail != nil {
		if n, failure := fail(ctx, messages); n >= 0 {
			sent, err = n, failure
		}
	}
	if p.next != nil {
		sent, err = p.next.Publish(ctx, messages)
	}
	var known *fanout.PublishError
	if errors.As(err, &known) {
		handed = func(i int) bool { return known.Handed[i] }
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, m := range messages {
		if !handed(i) {
			continue
		}
		data := m.Data
		if !p.keepNoPayload {
			data = slices.Clone(data)
		}
		f, err := fence.DecodeEntry(data)
		if err != nil || f.Tile != m.Tile {
			panic("a frame that cannot be read, or is on the wrong channel")
		}
		if p.keepNoPayload {
			f.Payload, f.Frame = nil, nil
		}
		p.frames = append(p.frames, received{Entry: f, at: time.Now()})
	}
	return sent, err
}

// seqs lists the sequences received of a tile, in order of arrival.
func (p *watchedPublisher) seqs(tile fence.TileID) []fence.Seq {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []fence.Seq
	for _, f := range p.frames {
		if f.Tile == tile {
			out = append(out, f.Seq)
		}
	}
	return out
}

func (p *watchedPublisher) all() []received {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.frames)
}

func (p *watchedPublisher) takeCalls() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = nil
	return calls
}

// upTo lists first, first+1, … last.
func upTo(first, last fence.Seq) []fence.Seq {
	var out []fence.Seq
	for s := first; s <= last; s++ {
		out = append(out, s)
	}
	return out
}

// firstTiles are the tiles from 1 to n.
func firstTiles(n fence.TileID) []fence.TileID {
	ids := make([]fence.TileID, n)
	for i := range ids {
		ids[i] = fence.TileID(i + 1)
	}
	return ids
}

// settle lets time pass until the bridge has surely looked twice.
func settle() {
	time.Sleep(300 * time.Millisecond)
	synctest.Wait()
}

func inBubble(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t)) })
}
