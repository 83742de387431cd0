package tile_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// line is what connects one process with the back ends. It can be cut, and loses what it is told to lose.
type line struct {
	w *world

	mu        sync.Mutex
	store     bool // cut from the coordination store
	authority bool // cut from the authority
	paused    chan struct{}
	rng       *rand.Rand
	rate      int // one call in rate is lost on its way, and one on its way back; zero: none
	snapshots int // times a snapshot was read
	writes    int // commits and rebases that got through
}

func (l *line) set(f func(*line)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

// call makes one call over the line.
func (l *line) call(op string, authority bool, f func() error) error {
	l.mu.Lock()
	cut, paused, fate := l.store, l.paused, -1
	if authority {
		cut = l.authority
	}
	if l.rate > 0 {
		fate = l.rng.IntN(l.rate)
	}
	l.mu.Unlock()
	if paused != nil {
		<-paused
	}
	if cut || fate == 0 {
		return &fence.StoreError{Op: op, Tile: testTile, Outcome: fence.ErrNotApplied, Err: errors.New("line is cut")}
	}
	err := f()
	if fate == 1 {
		return &fence.StoreError{Op: op, Tile: testTile, Outcome: fence.ErrUnknownOutcome,
			Err: errors.New("reply lost")}
	}
	return err
}

type lineStore struct{ *line }

func (s lineStore) Commit(ctx context.Context, c fence.Commit) (r fence.Receipt, err error) {
	err = s.call("commit", false, func() (err error) {
		r, err = s.w.store.Commit(ctx, c)
		if err == nil {
			s.set(func(l *line) { l.writes++ })
		}
		return err
	})
	return r, err
}

func (s lineStore) Rebase(ctx context.Context, c fence.Rebase) (r fence.Receipt, err error) {
	err = s.call("rebase", false, func() (err error) {
		r, err = s.w.store.Rebase(ctx, c)
		if err == nil {
			s.set(func(l *line) { l.writes++ })
		}
		return err
	})
	return r, err
}

func (s lineStore) SaveSnapshot(ctx context.Context, c fence.SnapshotWrite) error {
	return s.call("snapshot", false, func() error { return s.w.store.SaveSnapshot(ctx, c) })
}

func (s lineStore) Owner(ctx context.Context, id fence.TileID) (o fence.Owner, err error) {
	err = s.call("owner", false, func() (err error) { o, err = s.w.store.Owner(ctx, id); return err })
	return o, err
}

type lineLog struct {
	stream.Log
	*line
}

func (g lineLog) Read(ctx context.Context, c []stream.Cursor) (chunks []stream.Chunk, err error) {
	err = g.call("read", false, func() (err error) { chunks, err = g.Log.Read(ctx, c); return err })
	return chunks, err
}

func (g lineLog) Snapshot(ctx context.Context, id fence.TileID) (s fence.Snapshot, found bool, err error) {
	g.set(func(l *line) { l.snapshots++ })
	err = g.call("read snapshot", false, func() (err error) { s, found, err = g.Log.Snapshot(ctx, id); return err })
	return s, found, err
}

func (g lineLog) Last(ctx context.Context, id fence.TileID) (p fence.Position, err error) {
	err = g.call("last", false, func() (err error) { p, err = g.Log.Last(ctx, id); return err })
	return p, err
}

type lineAuthority struct {
	fence.Authority
	*line
}

func (a lineAuthority) ask(op string, f func(fence.Authority) (fence.Grant, error)) (g fence.Grant, err error) {
	err = a.call(op, true, func() (err error) { g, err = f(a.Authority); return err })
	return g, err
}

func (a lineAuthority) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return a.ask("claim", func(b fence.Authority) (fence.Grant, error) { return b.Claim(ctx, c) })
}

func (a lineAuthority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return a.ask("promote", func(b fence.Authority) (fence.Grant, error) { return b.Promote(ctx, c) })
}

func (a lineAuthority) Lookup(ctx context.Context, id fence.TileID) (fence.Grant, error) {
	return a.ask("lookup", func(b fence.Authority) (fence.Grant, error) { return b.Lookup(ctx, id) })
}

func (a lineAuthority) Release(ctx context.Context, g fence.Grant) error {
	return a.call("release", true, func() error { return a.Authority.Release(ctx, g) })
}

// process is a processor with a line of its own, and what it said.
type process struct {
	*runner
	line    *line
	contact string

	mu     sync.Mutex
	took   []tile.TakeoverInfo
	healed []tile.HealInfo
}

// process starts a processor. Its hooks for take-overs and repairs are replaced by records.
func (w *world) process(contact string, cfg tile.Config) *process {
	w.t.Helper()
	p := w.processOn(&line{w: w}, testTile, contact, cfg)
	w.t.Cleanup(func() {
		p.resume()
		p.stop()
		<-p.done
	})
	return p
}

// processOn is process for any tile, on a line that others may share. It is for the caller to stop it.
func (w *world) processOn(l *line, id fence.TileID, contact string, cfg tile.Config) *process {
	w.t.Helper()
	p := &process{contact: contact, line: l, runner: &runner{rules: &ledgerRules{}, done: make(chan struct{})}}
	cfg.Hooks.TookOver = func(i tile.TakeoverInfo) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.took = append(p.took, i)
	}
	cfg.Hooks.Diverged = func(i tile.DivergenceInfo) { w.t.Errorf("%s: a false alarm: %+v", contact, i) }
	cfg.Hooks.Healed = func(i tile.HealInfo) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.healed = append(p.healed, i)
	}
	seams := tile.Seams{Authority: lineAuthority{w.authority, p.line}, Store: lineStore{p.line}, Log: lineLog{w.log,
		p.line}}
	var err error
	p.TileProcessor, err = tile.New(id, contact, seams, p.rules, &cfg)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() {
		defer close(p.done)
		p.err = p.Run(ctx)
	}()
	return p
}

// kill ends a process as kill -9 does, for everybody else: nothing leaves it any more.
func (p *process) kill() {
	p.line.set(func(l *line) { l.store, l.authority = true, true })
	p.stop()
}

func (p *process) pause() {
	p.line.set(func(l *line) { l.paused = make(chan struct{}) })
}

func (p *process) resume() {
	p.line.set(func(l *line) {
		if l.paused != nil {
			close(l.paused)
			l.paused = nil
		}
	})
}

func (p *process) takeovers() []tile.TakeoverInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]tile.TakeoverInfo(nil), p.took...)
}

// eventually waits, in the bubble's time, until a processor is in a state.
func (p *process) eventually(t *testing.T, s tile.State, within time.Duration) {
	t.Helper()
	for end := time.Now().Add(within); p.Status().State != s; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "%s is still %s after %v", p.contact, p.Status().State, within)
	}
}

// asks requires that Submit sends everybody on to a contact.
func (p *process) asks(t *testing.T, contact string) {
	t.Helper()
	_, err := p.Submit(t.Context(), tile.Intent{Tile: testTile, Body: []byte("x")})
	var away *tile.RedirectError
	require.ErrorAs(t, err, &away)
	require.Equal(t, contact, away.Contact)
}
