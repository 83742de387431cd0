package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// line is what a process is connected to its servers by, and what chaos breaks. All of a process's calls
// go through it, so a line that lets nothing pass stands for the process: whose calls neither begin nor
// return is paused, and whose never will is dead.
type line struct {
	mu      sync.Mutex
	state   lineState
	changed chan struct{} // closed, and replaced, at every change of state
}

type lineState int

// The states of a line. Zero is none of them.
const (
	flowing lineState = iota + 1
	cut               // calls fail at once, and do nothing
	deaf              // calls do what they should, and their answers are lost
	paused            // calls neither begin nor return, as in a process that was sent SIGSTOP
	dead              // the same for ever
	buried            // dead, and its goroutines may end: the battle is over
)

// Causes of the errors that a broken line gives.
var (
	errLineCut   = errors.New("connection refused (chaos)")
	errReplyLost = errors.New("connection reset before the answer (chaos)")
	errKilled    = fmt.Errorf("this process was killed (chaos): %w", context.Canceled)
)

func newLine() *line { return &line{state: flowing, changed: make(chan struct{})} }

// set changes the state. Nothing brings back the dead.
func (l *line) set(s lineState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state >= dead && s != buried || l.state == s {
		return
	}
	l.state = s
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *line) is(s lineState) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == s
}

// await returns the state once the process runs: at once, unless it is paused or dead. A paused process
// does not notice that a deadline has passed, so there is no context.
func (l *line) await() lineState {
	for {
		l.mu.Lock()
		state, changed := l.state, l.changed
		l.mu.Unlock()
		if state != paused && state != dead {
			return state
		}
		<-changed
	}
}

// awaitFor is await for somebody outside, who may give up.
func (l *line) awaitFor(ctx context.Context) error {
	for {
		l.mu.Lock()
		state, changed := l.state, l.changed
		l.mu.Unlock()
		switch state {
		case paused, dead:
		case buried:
			return errKilled
		default:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// through makes a call over the line. lost is what a lost answer means: ErrUnknownOutcome for a write.
func through[T any](ctx context.Context, l *line, op string, id fence.TileID, lost error, call func(context.Context) (T, error)) (T, error) {
	var none T
	switch l.await() {
	case cut:
		return none, &fence.StoreError{Op: op, Tile: id, Outcome: fence.ErrNotApplied, Err: errLineCut}
	case buried:
		return none, errKilled
	}
	v, err := call(ctx)
	switch l.await() {
	case deaf:
		select {
		case <-ctx.Done(): // an answer that is lost is waited for
		case <-time.After(deafness):
		}
		return none, &fence.StoreError{Op: op, Tile: id, Outcome: lost, Err: errReplyLost}
	case buried:
		return none, errKilled
	}
	return v, err
}

// deafness is how long a caller waits for an answer that is lost before its connection is known to be broken.
const deafness = 50 * time.Millisecond

// storeLine is a fence.Store at the far end of a line.
type storeLine struct {
	*line
	fence.Store
}

func (s *storeLine) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	return through(ctx, s.line, "commit", c.Tile, fence.ErrUnknownOutcome, func(ctx context.Context) (fence.Receipt, error) { return s.Store.Commit(ctx, c) })
}

func (s *storeLine) Rebase(ctx context.Context, r fence.Rebase) (fence.Receipt, error) {
	return through(ctx, s.line, "rebase", r.Tile, fence.ErrUnknownOutcome, func(ctx context.Context) (fence.Receipt, error) { return s.Store.Rebase(ctx, r) })
}

func (s *storeLine) SaveSnapshot(ctx context.Context, w fence.SnapshotWrite) error {
	return write(ctx, s.line, "snapshot", w.Tile, func(ctx context.Context) error { return s.Store.SaveSnapshot(ctx, w) })
}

func (s *storeLine) Owner(ctx context.Context, id fence.TileID) (fence.Owner, error) {
	return through(ctx, s.line, "owner", id, fence.ErrNotApplied, func(ctx context.Context) (fence.Owner, error) { return s.Store.Owner(ctx, id) })
}

// authorityLine is a fence.Authority at the far end of a line.
type authorityLine struct {
	*line
	fence.Authority
}

func (a *authorityLine) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return through(ctx, a.line, "claim", c.Tile, fence.ErrUnknownOutcome, func(ctx context.Context) (fence.Grant, error) { return a.Authority.Claim(ctx, c) })
}

func (a *authorityLine) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return through(ctx, a.line, "promote", c.Tile, fence.ErrUnknownOutcome, func(ctx context.Context) (fence.Grant, error) { return a.Authority.Promote(ctx, c) })
}

func (a *authorityLine) Lookup(ctx context.Context, id fence.TileID) (fence.Grant, error) {
	return through(ctx, a.line, "lookup", id, fence.ErrNotApplied, func(ctx context.Context) (fence.Grant, error) { return a.Authority.Lookup(ctx, id) })
}

func (a *authorityLine) Release(ctx context.Context, g fence.Grant) error {
	return write(ctx, a.line, "release", g.Tile, func(ctx context.Context) error { return a.Authority.Release(ctx, g) })
}

// logLine is a stream.Log at the far end of a line.
type logLine struct {
	*line
	stream.Log
}

func (g *logLine) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	return through(ctx, g.line, "read", firstOf(cursors).Tile, fence.ErrNotApplied, func(ctx context.Context) ([]stream.Chunk, error) { return g.Log.Read(ctx, cursors) })
}

func (g *logLine) Snapshot(ctx context.Context, id fence.TileID) (fence.Snapshot, bool, error) {
	var found bool
	s, err := through(ctx, g.line, "read snapshot", id, fence.ErrNotApplied, func(ctx context.Context) (s fence.Snapshot, err error) {
		s, found, err = g.Log.Snapshot(ctx, id)
		return s, err
	})
	return s, found && err == nil, err
}

func (g *logLine) Last(ctx context.Context, id fence.TileID) (fence.Position, error) {
	return through(ctx, g.line, "read last", id, fence.ErrNotApplied, func(ctx context.Context) (fence.Position, error) { return g.Log.Last(ctx, id) })
}

func (g *logLine) Mark(ctx context.Context, writes []stream.MarkWrite) []error {
	var answers []error
	err := write(ctx, g.line, "mark", firstOf(writes).Tile, func(ctx context.Context) error {
		answers = g.Log.Mark(ctx, writes)
		return nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(writes))
	}
	return answers
}

// firstOf is the first of a slice, or nothing.
func firstOf[T any](all []T) (first T) {
	if len(all) > 0 {
		first = all[0]
	}
	return first
}

func (g *logLine) Marks(ctx context.Context, tiles []fence.TileID) ([]stream.TileMarks, error) {
	return through(ctx, g.line, "read marks", firstOf(tiles), fence.ErrNotApplied, func(ctx context.Context) ([]stream.TileMarks, error) { return g.Log.Marks(ctx, tiles) })
}

func (g *logLine) Trim(ctx context.Context, r stream.TrimRequest) (stream.Trimmed, error) {
	return through(ctx, g.line, "trim", r.Tile, fence.ErrUnknownOutcome, func(ctx context.Context) (stream.Trimmed, error) { return g.Log.Trim(ctx, r) })
}

// write is through for a call that answers with nothing but an error.
func write(ctx context.Context, l *line, op string, id fence.TileID, call func(context.Context) error) error {
	_, err := through(ctx, l, op, id, fence.ErrUnknownOutcome, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}
