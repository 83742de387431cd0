package tile_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/tile"
)

// line is what connects one process with the back ends. It can be cut, and loses what it is set to lose.
type line struct {
	w *world

	mu        sync.Mutex
	store     bool // cut from the coordination store
	authority bool // cut from the authority
	readOnly  bool // the store takes no write
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

// seams are the world's back ends at the end of the line.
func (l *line) seams(a fence.Authority) tile.Seams {
	s := l.w.more
	s.Authority, s.Store = intercept.AuthorityOf(a, l.call), intercept.StoreOf(l.w.store, l.call)
	s.Log = intercept.LogOf(l.w.log, l.call)
	return s
}

// call makes one call over the line.
func (l *line) call(ctx context.Context, c intercept.Call, do func(context.Context) error) error {
	if c.To == intercept.Log && (c.Write || c.Op == "marks") {
		return do(ctx)
	}
	l.mu.Lock()
	cut, paused, fate := l.store, l.paused, -1
	if c.To == intercept.Authority {
		cut = l.authority
	}
	cut = cut || l.readOnly && c.To == intercept.Store && c.Write
	if l.rate > 0 {
		fate = l.rng.IntN(l.rate)
	}
	if c.To == intercept.Log && c.Op == "snapshot" {
		l.snapshots++
	}
	l.mu.Unlock()
	if paused != nil {
		<-paused
	}
	if cut || fate == 0 {
		return &fence.StoreError{Op: c.Op, Tile: testTile, Outcome: fence.ErrNotApplied, Err: errors.New("line is cut")}
	}
	err := do(ctx)
	if err == nil && (c.Op == "commit" || c.Op == "rebase") {
		l.set(func(l *line) { l.writes++ })
	}
	if fate == 1 {
		return &fence.StoreError{Op: c.Op, Tile: testTile, Outcome: fence.ErrUnknownOutcome,
			Err: errors.New("reply lost")}
	}
	return err
}

// refusing fails the calls of one method while a switch is on: they are not applied.
func refusing(op string, on *atomic.Bool) intercept.Func {
	return func(ctx context.Context, c intercept.Call, do func(context.Context) error) error {
		if c.Op == op && on.Load() {
			return &fence.StoreError{Op: op, Tile: c.Tile, Outcome: fence.ErrNotApplied, Err: errors.New("cut off")}
		}
		return do(ctx)
	}
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
	p := &process{contact: contact, line: l}
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
	rules := &ledgerRules{}
	processor, err := tile.New(id, contact, p.line.seams(w.authority), rules, &cfg)
	require.NoError(w.t, err)
	p.runner = launch(w.t, processor, rules)
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
