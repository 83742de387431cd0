// Package faultline breaks what connects a process to its back ends, for tests and for the battle under chaos: without
// a server and within one process, a line that lets nothing pass stands for a process that is paused or dead.
package faultline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/share"
)

// Line is what all calls of a process to its back ends go through. All methods may be called from any goroutine.
type Line struct {
	mu      sync.Mutex
	state   State
	changed chan struct{} // closed, and replaced, at every change of state
}

// State is how a Line is broken.
type State int

// The states. A Line whose calls neither begin nor return stands for a process that is paused, or dead.
const (
	Flowing State = 1 // nothing is broken
	Cut     State = 2 // calls fail at once, and do nothing
	Deaf    State = 3 // calls do what they should, and their answers are lost
	Paused  State = 4 // calls neither begin nor return, as in a process that was sent SIGSTOP
	Dead    State = 5 // the same for ever
	Buried  State = 6 // dead, and its goroutines may end
)

// ErrKilled is the error of all calls over a line that is Buried.
var ErrKilled = fmt.Errorf("this process was killed (chaos): %w", context.Canceled)

var (
	errCut       = errors.New("connection refused (chaos)")
	errReplyLost = errors.New("connection reset before the answer (chaos)")
)

// New returns a line that is Flowing.
func New() *Line { return &Line{state: Flowing, changed: make(chan struct{})} }

// Set changes the state. A Dead line can only be Buried.
func (l *Line) Set(s State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state >= Dead && s != Buried || l.state == s {
		return
	}
	l.state = s
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Line) look() (State, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.changed
}

// Is reports whether the line is in a state.
func (l *Line) Is(s State) bool {
	state, _ := l.look()
	return state == s
}

// Await returns the state once the process runs: at once, unless it is paused or dead. A paused process does not
// notice that a deadline has passed, so ctx is for callers outside the process. It is zero when ctx ended first.
func (l *Line) Await(ctx context.Context) State {
	for {
		state, changed := l.look()
		if state != Paused && state != Dead {
			return state
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0
		}
	}
}

// Lives returns nil once the process runs, and ErrKilled when it is dead and its goroutines may end.
func (l *Line) Lives() error {
	if l.Await(context.Background()) == Buried {
		return ErrKilled
	}
	return nil
}

// Bury lets the goroutines of a process that is dead end. It does nothing to one that is not.
func (l *Line) Bury() {
	if l.Is(Dead) {
		l.Set(Buried)
	}
}

// Process returns b as the process at the end of the line sees it.
func (l *Line) Process(b tilefence.Backends) tilefence.Backends {
	b = l.Coordination(b)
	b.Authority = &authority{l, b.Authority}
	if b.Workers != nil {
		b.Workers = &workers{l, b.Workers}
	}
	return b
}

// Coordination returns b with the coordination store at the far end of the line.
func (l *Line) Coordination(b tilefence.Backends) tilefence.Backends {
	b.Store, b.Log = &store{l, b.Store}, &log{l, b.Log}
	return b
}

// deafness is how long a caller waits for an answer that is lost before its connection is known to be broken.
const deafness = 50 * time.Millisecond

// through makes a call over the line. lost is what a lost answer means: ErrUnknownOutcome for a write.
func through[A, T any](
	ctx context.Context, l *Line, lost error, call func(context.Context, A) (T, error), arg A,
) (T, error) {
	var none T
	switch l.Await(context.Background()) {
	case Cut:
		return none, &fence.StoreError{Op: "call", Outcome: fence.ErrNotApplied, Err: errCut}
	case Buried:
		return none, ErrKilled
	}
	v, err := call(ctx, arg)
	switch l.Await(context.Background()) {
	case Deaf:
		wait.For(ctx, deafness) // an answer that is lost is waited for
		return none, &fence.StoreError{Op: "call", Outcome: lost, Err: errReplyLost}
	case Buried:
		return none, ErrKilled
	}
	return v, err
}

// What a lost answer means.
var unread, unknown = fence.ErrNotApplied, fence.ErrUnknownOutcome

// silent makes a call that answers with an error alone one that answers with nothing too.
func silent[A any](call func(context.Context, A) error) func(context.Context, A) (struct{}, error) {
	return func(ctx context.Context, a A) (struct{}, error) { return struct{}{}, call(ctx, a) }
}

// workers are share.Members at the far end of a line.
type workers struct {
	*Line
	share.Members
}

func (w *workers) Beat(ctx context.Context, group, member string, ttl time.Duration) (all []string, known bool,
	err error) {
	all, err = through(ctx, w.Line, unknown, func(ctx context.Context, group string) (all []string, err error) {
		all, known, err = w.Members.Beat(ctx, group, member, ttl)
		return all, err
	}, group)
	return all, known, err
}

func (w *workers) Leave(ctx context.Context, group, member string) error {
	_, err := through(ctx, w.Line, unknown, silent(func(ctx context.Context, member string) error {
		return w.Members.Leave(ctx, group, member)
	}), member)
	return err
}

// store is a fence.Store at the far end of a line.
type store struct {
	*Line
	fence.Store
}

func (s *store) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	return through(ctx, s.Line, unknown, s.Store.Commit, c)
}

func (s *store) Rebase(ctx context.Context, r fence.Rebase) (fence.Receipt, error) {
	return through(ctx, s.Line, unknown, s.Store.Rebase, r)
}

func (s *store) SaveSnapshot(ctx context.Context, w fence.SnapshotWrite) error {
	_, err := through(ctx, s.Line, unknown, silent(s.Store.SaveSnapshot), w)
	return err
}

func (s *store) Owner(ctx context.Context, id fence.TileID) (fence.Owner, error) {
	return through(ctx, s.Line, unread, s.Store.Owner, id)
}

// authority is a fence.Authority at the far end of a line.
type authority struct {
	*Line
	fence.Authority
}

func (a *authority) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return through(ctx, a.Line, unknown, a.Authority.Claim, c)
}

func (a *authority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return through(ctx, a.Line, unknown, a.Authority.Promote, c)
}

func (a *authority) Lookup(ctx context.Context, id fence.TileID) (fence.Grant, error) {
	return through(ctx, a.Line, unread, a.Authority.Lookup, id)
}

func (a *authority) Release(ctx context.Context, g fence.Grant) error {
	_, err := through(ctx, a.Line, unknown, silent(a.Authority.Release), g)
	return err
}

// log is a stream.Log at the far end of a line.
type log struct {
	*Line
	stream.Log
}

func (g *log) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	return through(ctx, g.Line, unread, g.Log.Read, cursors)
}

func (g *log) Snapshot(ctx context.Context, id fence.TileID) (s fence.Snapshot, found bool, err error) {
	s, err = through(ctx, g.Line, unread, func(ctx context.Context, id fence.TileID) (s fence.Snapshot, err error) {
		s, found, err = g.Log.Snapshot(ctx, id)
		return s, err
	}, id)
	return s, found && err == nil, err
}

func (g *log) Last(ctx context.Context, id fence.TileID) (fence.Position, error) {
	return through(ctx, g.Line, unread, g.Log.Last, id)
}

func (g *log) Mark(ctx context.Context, writes []stream.MarkWrite) []error {
	answers, err := through(ctx, g.Line, unknown, func(ctx context.Context, w []stream.MarkWrite) ([]error, error) {
		return g.Log.Mark(ctx, w), nil
	}, writes)
	if err != nil {
		return slices.Repeat([]error{err}, len(writes))
	}
	return answers
}

func (g *log) Marks(ctx context.Context, tiles []fence.TileID) ([]stream.TileMarks, error) {
	return through(ctx, g.Line, unread, g.Log.Marks, tiles)
}

func (g *log) Trim(ctx context.Context, r stream.TrimRequest) (stream.Trimmed, error) {
	return through(ctx, g.Line, unknown, g.Log.Trim, r)
}
