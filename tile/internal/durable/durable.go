// Package durable reads and writes what the durable store has of a tile: its checkpoint and, if the tile writes
// through, its journal. It says how that stands to the tile's stream.
package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/retry"
)

// Journal is the part of tile.Journal that an owner needs before it serves.
type Journal interface {
	Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error
	Tail(ctx context.Context, tile fence.TileID, after fence.Seq) ([]fence.Entry, error)
	Base(ctx context.Context, tile fence.TileID, s fence.Snapshot) error
}

// Store is what a processor knows of the durable store.
type Store struct {
	Tile       fence.TileID
	Checkpoint func(context.Context, fence.TileID) (fence.Snapshot, bool, error) // nil: there is no durable store
	Journal    Journal                                                           // nil unless the tile writes through
	Reading    time.Duration                                                     // bounds Take and Readable
	Writing    time.Duration                                                     // bounds Begin
}

// State is what the durable store has of a tile.
type State struct {
	At    fence.Position // where it ends
	Found bool
	Snap  *fence.Snapshot // the checkpoint
	Tail  []fence.Entry   // of the journal: what continues the checkpoint
	Err   error
}

// Tick is that of the state.
func (c *State) Tick() fence.Tick {
	tick := c.Snap.Tick
	for i := range c.Tail {
		tick = max(tick, c.Tail[i].Tick)
	}
	return tick
}

// checkpointPatience is how long an acquisition with a whole stream waits for the durable store. That it does not
// answer is no reason to stop a tile: what it could tell matters only after the loss of both an owner and the newest
// end of the stream, and a durable store that is down would stop every take-over.
const checkpointPatience = 2 * time.Second

// Ask asks how far the durable state goes, in a goroutine of beside. The answer comes within checkpointPatience, to
// one call of wait.
func (s *Store) Ask(ctx context.Context, beside *sync.WaitGroup) (wait func() State) {
	if s.Checkpoint == nil {
		return func() State { return State{} }
	}
	ctx, cancel := context.WithTimeout(ctx, checkpointPatience)
	answer := make(chan State, 1)
	beside.Go(func() {
		defer cancel()
		answer <- s.checkpoint(ctx)
	})
	return func() State {
		select {
		case c := <-answer:
			return c
		case <-ctx.Done():
		}
		select {
		case c := <-answer: // it was there first
			return c
		default:
			return State{Err: context.Cause(ctx)}
		}
	}
}

// Take seals the journal under an epoch and then reads how far the durable state goes: in this order, or what an
// earlier owner appends in between is acknowledged and missed.
func (s *Store) Take(ctx context.Context, epoch fence.Epoch) (c State, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Reading)
	defer cancel()
	if err = s.Journal.Seal(ctx, s.Tile, epoch); err == nil {
		c, err = s.Read(ctx)
	}
	return c, err
}

func (s *Store) checkpoint(ctx context.Context) (c State) {
	c.Snap = new(fence.Snapshot)
	*c.Snap, c.Found, c.Err = s.Checkpoint(ctx, s.Tile)
	c.At = c.Snap.Position
	return c
}

// durableReads bounds how often the durable state is read again because a checkpoint came between reading the
// last one and reading the journal, and the journal was truncated behind it.
const durableReads = 3

// Read reads the checkpoint and, of a tile that writes through, what the journal has after it.
func (s *Store) Read(ctx context.Context) (State, error) {
	for attempt := 1; ; attempt++ {
		c := s.checkpoint(ctx)
		if c.Err != nil || s.Journal == nil {
			return c, c.Err
		}
		tail, err := s.Journal.Tail(ctx, s.Tile, c.At.Seq)
		if err != nil {
			return c, err
		}
		c.Tail, err = continuing(s.Tile, c.At, tail)
		switch {
		case errors.Is(err, stream.ErrGap) && attempt < durableReads:
			continue
		case err != nil:
			return c, fmt.Errorf("tile %s: its journal after %s: %w", s.Tile, c.At, err)
		case len(c.Tail) > 0:
			c.At = c.Tail[len(c.Tail)-1].Position
		}
		return c, nil
	}
}

// continuing gives the part of a journal's tail that continues a position. An entry of a lower epoch than the one
// before it, which it does not follow, is left from a history that a later owner has replaced: the end. Any other
// that does not follow is a *stream.GapError.
func continuing(tile fence.TileID, at fence.Position, tail []fence.Entry) ([]fence.Entry, error) {
	for i := range tail {
		e := &tail[i]
		if err := e.Verify(); err != nil {
			return nil, err
		}
		if e.Prev != at {
			if e.Epoch < at.Epoch {
				return tail[:i], nil
			}
			return nil, &stream.GapError{Tile: tile, Have: at, Next: *e}
		}
		at = e.Position
	}
	return tail, nil
}

// Readable reports, as nil, that the journal answers: a follower that cannot reach it would freeze the tile that it
// takes from an owner. It only reads. A write, even of a seal that is there already, would bring back one that the
// durable store has lost, by whose absence the owner learns that the store was restored to an older state.
func (s *Store) Readable(ctx context.Context, after fence.Seq) error {
	if s.Journal == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Reading)
	defer cancel()
	_, err := s.Journal.Tail(ctx, s.Tile, after)
	return err
}

// ErrLater means: the durable store has something that a snapshot does not supersede, which came since it was read.
var ErrLater = errors.New("the durable store has a later state")

// Begin makes the durable state end at a position of this processor's own epoch before it serves from there, with a
// snapshot of the state. From then on an earlier owner can neither append nor put a snapshot, and what is acknowledged
// is this snapshot and what is appended after it. Tiles that do not write through need none.
//
// errors.Is(err, ErrLater) if the snapshot is refused. Any other error says nothing of what is stored.
func (s *Store) Begin(ctx context.Context, snap fence.Snapshot) error {
	if s.Journal == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Writing)
	defer cancel()
	err := s.Journal.Base(ctx, s.Tile, snap)
	switch {
	case err == nil, retry.Able(err), errors.Is(err, fence.ErrInvalidArgument), errors.Is(err, fence.ErrCorrupt):
		return err
	case ctx.Err() != nil:
		return &fence.StoreError{Op: "journal base", Tile: s.Tile, Outcome: fence.ErrUnknownOutcome, Err: err}
	}
	return fmt.Errorf("%w: %w", ErrLater, err)
}

// Standing is how the durable state stands to the stream.
type Standing int

// The standings.
const (
	StreamReaches Standing = iota // the stream has all that the checkpoint has
	Ahead                         // the checkpoint has more: a failover lost the end of the stream
	StreamWentOn                  // another owner has served without what the checkpoint has
)

// String names the state that the tile goes on with.
func (s Standing) String() string {
	if s == Ahead {
		return "the checkpoint's"
	}
	return "the stream's"
}

// LogValue implements slog.LogValuer with the form of String.
func (s Standing) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Compare says how a durable snapshot stands to where the stream ends.
//
// A stream at no lower epoch and no lower sequence contains the snapshot, or has replaced it. A snapshot of the
// same or a higher epoch that the stream does not reach is later than the stream: the owner and the newest end
// of the stream were lost together. A stream of a higher epoch and a lower sequence belongs to an owner that
// began without the snapshot and has served since; what it lacks was void before, so its state stands, but
// its sequence has to be moved above those already used.
func Compare(ends, durable fence.Position) Standing {
	switch {
	case durable.Epoch <= ends.Epoch && durable.Seq <= ends.Seq:
		return StreamReaches
	case durable.Epoch < ends.Epoch:
		return StreamWentOn
	}
	return Ahead
}

// CompareThrough is Compare for a tile that writes through. What is durable is all that was ever acknowledged, and
// only the history itself tells whether the stream has it: an owner of an earlier release that installed itself and
// died before it had restored what is durable leaves a stream that looks later, and is not. Where events were committed
// without it, that was an owner of another class. ok is false if the history does not have the position that was
// replayed.
func CompareThrough(h *stream.Recovery, replayed, durable fence.Position) (how Standing, ok bool) {
	last := slices.IndexFunc(h.Entries, func(e fence.Entry) bool { return e.Position == replayed })
	if last < 0 && h.Snapshot.Position != replayed {
		return 0, false
	}
	if h.Snapshot.Seq >= durable.Seq && h.Snapshot.Epoch >= durable.Epoch {
		return StreamReaches, true
	}
	how = Ahead
	if h.Snapshot.Epoch > durable.Epoch {
		how = StreamWentOn
	}
	for _, e := range h.Entries[:last+1] {
		if e.Position == durable {
			return StreamReaches, true
		}
		if e.Epoch > durable.Epoch && !isEmpty(&e) {
			how = StreamWentOn
		}
	}
	return how, true
}

// isEmpty reports whether an entry has neither events nor outcomes, as an install.
func isEmpty(e *fence.Entry) bool {
	b, err := stream.DecodeBatch(e)
	return err == nil && b.Len() == 0
}
