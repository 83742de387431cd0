// Package history holds a tile as its committed batches have made it: the game's state, the outcomes of recent actions,
// and what an owner counts of the tile's stream. It does no I/O.
package history

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
)

// Game is the part of tile.Rules that a history needs.
type Game interface {
	Restore(snapshot []byte) error
	Apply(tick fence.Tick, events [][]byte) error
	Snapshot() ([]byte, error)
	Divided() bool // the snapshot is a list of parts, one for each area
}

// Watch is called before and after each call of the game by which a history is read: it may not return.
type Watch interface {
	// Begin names the call, and the batch: of a number of events, at a sequence. Zero: of the snapshot.
	Begin(call string, seq fence.Seq, tick fence.Tick, events int)
	End()
}

type unwatched struct{}

func (unwatched) Begin(string, fence.Seq, fence.Tick, int) {}
func (unwatched) End()                                     {}

// History is a tile as its committed batches have made it: the game's state, the outcomes of recent actions, and the
// position where they end. The state changes only by restore and fold.
type History struct {
	tile    fence.TileID
	game    Game
	Actions Actions
	// Transfers are the entities that cross the tile's border.
	Transfers transfer.State
	Watch     Watch
	Bound     Bound
	Heat      Heat

	Position  fence.Position
	path      []fence.Position // the last ones that were read, from a snapshot or of an entry, or presented
	Tick      fence.Tick       // the last that was played or folded
	Seen      fence.Tick       // the highest seen in the owner hash of another owner: it is not played again
	GameBytes int              // of the game's state in the last snapshot that was read or written
	Warm      bool             // the state is one that the stream has had: what was committed since continues it
	stuck     int              // chunks in a row after which the owner hash was ahead of the stream

	played     instant        // of what was read last
	snapped    fence.Position // where the last snapshot was encoded
	sum        uint32         // of the game's state there
	restored   fence.Position // where the last snapshot was restored
	Divergence *Divergence    // this state is not the owner's
	Agreed     int            // how often what was folded here was the owner's, since a divergence
	Recoded    fence.Epoch    // of an owner that encodes the state otherwise: it cannot be compared

	Skip   []fence.EventRef // what Replay leaves out
	failed int              // entries that the last Replay folded before it failed; -1: none, nor the snapshot
}

// New makes the history of a new tile, which remembers outcomes for a number of ticks, and whose stream may take a
// number of bytes.
func New(tile fence.TileID, game Game, remember fence.Tick, streamBytes int64) *History {
	return &History{tile: tile, game: game, Watch: unwatched{},
		Actions: Actions{keep: remember}, Bound: Bound{Limit: streamBytes}}
}

// believable is a tick that was read, or zero for one that cannot be.
func believable(tick fence.Tick) fence.Tick {
	if tick > fence.FarTick {
		return 0
	}
	return tick
}

// Saw notes the tick of an owner hash, and reports whether it can be.
func (h *History) Saw(tick fence.Tick) bool {
	h.Seen = max(h.Seen, believable(tick))
	return tick <= fence.FarTick
}

// CanRemember reports whether the outcomes of n more actions, whose IDs take bytes in a snapshot, can be remembered.
func (h *History) CanRemember(n, bytes int) bool { return h.Actions.allows(n, bytes, h.beside()) }

// beside is what a snapshot has beside the remembered actions, in bytes.
func (h *History) beside() int { return h.GameBytes + h.Transfers.Bytes() }

// Advance begins the next tick.
func (h *History) Advance() {
	h.Tick++
	h.Actions.Expire(h.Tick)
}

// Replay replaces the history by a snapshot and the entries that follow it. A nil snapshot is a new tile.
func (h *History) Replay(s *fence.Snapshot, entries []fence.Entry) error {
	if s == nil {
		s = &fence.Snapshot{}
	}
	h.failed = -1
	if err := h.restore(s); err != nil {
		return err
	}
	h.explain(s)
	h.Tick, h.path = believable(s.Tick), h.path[:0]
	h.played = instant{h.Tick, s.Taken}
	h.reads(s.Position)
	h.Bound.begin()
	for i := range entries {
		if err := h.foldEntry(&entries[i], false); err != nil {
			h.failed = i
			return err
		}
	}
	h.Tick = max(h.Tick, believable(h.Seen))
	h.Actions.Expire(h.Tick)
	return nil
}

func (h *History) restore(s *fence.Snapshot) error {
	h.Actions.reset()
	var e envelope
	if len(s.Blob) > 0 {
		var err error
		if e, err = openEnvelope(s.Blob); err != nil {
			return &fence.CorruptError{Tile: h.tile, What: "snapshot", Detail: err.Error()}
		}
		h.Actions.restore(e.actions)
	}
	h.Transfers, h.GameBytes = e.transfers, len(e.game)
	h.Watch.Begin("Restore", 0, s.Tick, 0)
	defer h.Watch.End()
	return h.game.Restore(e.game)
}

// foldEntry folds an entry of the stream that follows the history. If it says what the owner's state was before, and
// compare is set, the state is compared.
func (h *History) foldEntry(e *fence.Entry, compare bool) error {
	b, err := stream.DecodeBatch(e)
	if err != nil {
		return &fence.CorruptError{Tile: h.tile, What: "stream entry", At: e.Position, Detail: err.Error()}
	}
	if compare {
		h.compare(b.StateSum, e.Position.Epoch)
	} else if len(h.Skip) > 0 {
		b.Events = h.without(e.Seq, b.Events)
	}
	h.Watch.Begin("Apply", e.Seq, e.Tick, len(b.Events))
	err = h.Fold(e.Position, e.Tick, b, len(e.Frame))
	h.Watch.End()
	if err != nil {
		return err
	}
	h.Tick = max(h.Tick, believable(e.Tick))
	h.played = instant{h.Tick, e.At}
	h.reads(e.Position)
	return nil
}

// instant is when a tick was played, by its owner's clock; zero: that is not known.
type instant struct {
	tick fence.Tick
	at   time.Time
}

// Played is when the last tick of the history was played, by the clock of its owner. The ticks after the last batch,
// without events, are counted as far as the owner hash has shown them. Zero: there was none, or it is not known.
func (h *History) Played() time.Time {
	if h.played.at.IsZero() || h.Tick <= h.played.tick {
		return h.played.at
	}
	return h.played.at.Add(h.Actions.Interval * time.Duration(min(h.Tick-h.played.tick, 1<<20)))
}

// pathKept is how many positions are kept of the history that was read and written, at least.
const pathKept = 64

func (h *History) reads(at fence.Position) {
	h.Position = at
	h.Presents(at)
}

// Presents notes that the history may go on at a position: a batch is presented there.
func (h *History) Presents(at fence.Position) {
	n := len(h.path)
	if n > 0 && h.path[n-1] == at {
		return
	}
	if n == 2*pathKept {
		h.path = append(h.path[:0], h.path[pathKept:]...)
	}
	h.path = append(h.path, at)
}

// Departed reports whether a position is of another history than this one, as far as that is kept: what is before it
// counts as the same, if its epoch is not a later one. An authority that was restored grants numbers again, so they do
// not say it alone.
func (h *History) Departed(at fence.Position) bool {
	var first fence.Position
	if len(h.path) > 0 {
		first = h.path[0]
	}
	if at.Seq < first.Seq {
		return at.Epoch > first.Epoch
	}
	return !slices.Contains(h.path, at)
}

// Fold applies a batch that was committed at a position, and takes bytes in the stream, to the state.
func (h *History) Fold(at fence.Position, tick fence.Tick, b *stream.Batch, bytes int) error {
	transfers, err := h.Transfers.Fold(at, tick, b)
	if err != nil {
		return &fence.CorruptError{Tile: h.tile, What: "transfers", At: at, Detail: err.Error()}
	}
	if err := h.game.Apply(tick, b.Events); err != nil {
		return err
	}
	h.Transfers = transfers
	h.Actions.add(tick, b.Resolutions)
	h.Bound.grow(bytes)
	h.Heat.add(tick, b.Len())
	return nil
}

// stuckBeforeReload is how many chunks in a row must leave the owner hash ahead of a stream that has no more entries,
// before the snapshot is read again. An operator may have deleted the stream.
const stuckBeforeReload = 3

// Extend folds a chunk that was read after the history. It reports whether the history is now one that the stream has
// had: not if the chunk does not continue it, if the owner hash says that the stream ends elsewhere (a failover may
// have taken its end), or if something cannot be read.
func (h *History) Extend(c *stream.Chunk) bool {
	for i := range c.Entries {
		e := &c.Entries[i]
		if e.Kind == fence.KindRebase || e.Prev != h.Position || e.Verify() != nil || h.foldEntry(e, true) != nil {
			return false
		}
		h.Bound.followed()
	}
	switch at := c.Owner.Position; {
	case c.Poison != nil:
		return false
	case !c.Owner.Present(), len(c.Entries) >= stream.DefaultLimit:
		return true
	case at.Seq > h.Position.Seq:
		// Committed between the reading of the entries and that of the owner hash, unless it stays so.
		h.stuck++
		return h.stuck%stuckBeforeReload != 0
	default:
		h.stuck = 0
		return at == h.Position
	}
}

// Blob encodes the state as a snapshot.
func (h *History) Blob() ([]byte, error) {
	game, err := h.game.Snapshot()
	if err != nil {
		return nil, err
	}
	divided := h.game.Divided()
	if divided {
		if err := fence.CheckParts(game); err != nil {
			return nil, fmt.Errorf("tile %s: the snapshot of divided rules must be a list of parts: %w", h.tile, err)
		}
	}
	h.GameBytes, h.snapped, h.sum = len(game), h.Position, stream.SumState(game)
	return appendEnvelope(make([]byte, 0, len(game)+h.Actions.bytes+h.Transfers.Bytes()+64), game, divided, &h.Actions,
		&h.Transfers), nil
}

// Snapshot is the history as a durable snapshot by an owner at a position.
func (h *History) Snapshot(at fence.Position, contact string, blob []byte) fence.Snapshot {
	return fence.Snapshot{Position: at, Tick: h.Tick, Contact: contact, Sum: fence.Checksum(blob),
		Taken: time.Now(), Blob: blob}
}

// without is the events of a batch, less those of Skip.
func (h *History) without(seq fence.Seq, events [][]byte) [][]byte {
	var left [][]byte
	for i, e := range events {
		if !slices.Contains(h.Skip, fence.EventRef{Seq: seq}) &&
			!slices.Contains(h.Skip, fence.EventRef{Seq: seq, Index: i + 1}) {
			left = append(left, e)
		}
	}
	return left
}

// Blame says what of a snapshot and entries made Replay fail: an event without which their batch can be folded, if one
// is found within a time; else the batch; zero: the snapshot. The state may be anything afterwards.
func (h *History) Blame(s *fence.Snapshot, entries []fence.Entry, within time.Duration) fence.EventRef {
	n, skip, began := h.failed, h.Skip, time.Now()
	if n < 0 {
		return fence.EventRef{}
	}
	culprit := fence.EventRef{Seq: entries[n].Seq}
	b, err := stream.DecodeBatch(&entries[n])
	if err != nil {
		return culprit
	}
	for i := range b.Events {
		one := fence.EventRef{Seq: culprit.Seq, Index: i + 1}
		h.Skip = append(slices.Clone(skip), one)
		if err = h.Replay(s, entries[:n+1]); err == nil {
			culprit = one
		}
		if err == nil || time.Since(began) > within {
			break
		}
	}
	h.Skip = skip
	return culprit
}

// Heat is how much happens in a tile: events a tick, each tick weighing a twentieth less than the next.
type Heat struct {
	Value float64
	tick  fence.Tick
}

const heatKept = 0.95 // of a tick's weight, a tick later

// add counts a tick's events. Ticks between this one and the last had none.
func (h *Heat) add(tick fence.Tick, events int) {
	h.Decay(tick)
	h.Value += (1 - heatKept) * float64(events)
}

// Decay lets quiet ticks pass.
func (h *Heat) Decay(tick fence.Tick) {
	switch {
	case tick == h.tick+1:
		h.Value *= heatKept
	case tick > h.tick && h.Value > 0:
		h.Value *= math.Pow(heatKept, float64(tick-h.tick))
	}
	if h.Value < 1e-6 {
		h.Value = 0
	}
	h.tick = tick
}
