package tile

import (
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// history is a tile as its committed batches have made it: the game's state, the outcomes of recent actions, and the
// position where they end. It changes only by restore and fold.
type history struct {
	tile    fence.TileID
	rules   Rules
	actions actionMemory
	bound   streamBound
	heat    heat

	position  fence.Position
	tick      fence.Tick // the last that was played or folded
	seen      fence.Tick // the highest seen in the owner hash of another owner: it is not played again
	gameBytes int        // of the game's state in the last snapshot that was read or written
	stuck     int        // chunks in a row after which the owner hash was ahead of the stream
}

// replay replaces the history by a snapshot and the entries that follow it. A nil snapshot is a new tile.
func (h *history) replay(s *fence.Snapshot, entries []fence.Entry) error {
	if s == nil {
		s = &fence.Snapshot{}
	}
	if err := h.restore(s.Blob); err != nil {
		return err
	}
	h.tick, h.position = s.Tick, s.Position
	h.bound.begin()
	for i := range entries {
		if err := h.foldEntry(&entries[i]); err != nil {
			return err
		}
	}
	h.tick = max(h.tick, h.seen)
	h.actions.expire(h.tick)
	return nil
}

func (h *history) restore(blob []byte) error {
	h.actions.reset()
	var game []byte
	if len(blob) > 0 {
		var actions []remembered
		var err error
		if game, actions, err = openEnvelope(blob); err != nil {
			return &fence.CorruptError{Tile: h.tile, What: "snapshot", Detail: err.Error()}
		}
		for _, a := range actions {
			h.actions.put(a)
		}
	}
	h.gameBytes = len(game)
	if err := h.rules.Restore(game); err != nil {
		return fmt.Errorf("tile %s: the rules refuse the snapshot: %w", h.tile, err)
	}
	return nil
}

// foldEntry folds an entry of the stream that follows the history.
func (h *history) foldEntry(e *fence.Entry) error {
	b, err := stream.DecodeBatch(e)
	if err != nil {
		return &fence.CorruptError{Tile: h.tile, What: "stream entry", At: e.Position, Detail: err.Error()}
	}
	if err := h.fold(e.Tick, b); err != nil {
		return err
	}
	h.bound.grow(len(e.Frame))
	h.heat.add(e.Tick, b.Len())
	h.tick, h.position = max(h.tick, e.Tick), e.Position
	return nil
}

// fold applies a committed batch to the state.
func (h *history) fold(tick fence.Tick, b *stream.Batch) error {
	if err := h.rules.Apply(tick, b.Events); err != nil {
		return fmt.Errorf("tile %s: tick %d: the rules refuse a committed batch: %w", h.tile, tick, err)
	}
	h.actions.add(tick, b.Resolutions)
	return nil
}

// stuckBeforeReload is how many chunks in a row must leave the owner hash ahead of a stream that has no more entries,
// before the snapshot is read again. An operator may have deleted the stream.
const stuckBeforeReload = 3

// extend folds a chunk that was read after the history. It reports whether the history is now one that the stream has
// had: not if the chunk does not continue it, if the owner hash says that the stream ends elsewhere (a failover may
// have taken its end), or if something cannot be read.
func (h *history) extend(c *stream.Chunk) bool {
	for i := range c.Entries {
		e := &c.Entries[i]
		if e.Kind == fence.KindRebase || e.Prev != h.position || e.Verify() != nil || h.foldEntry(e) != nil {
			return false
		}
		h.bound.followed()
	}
	switch at := c.Owner.Position; {
	case c.Poison != nil:
		return false
	case !c.Owner.Present(), len(c.Entries) >= stream.DefaultLimit:
		return true
	case at.Seq > h.position.Seq:
		// Committed between the reading of the entries and that of the owner hash, unless it stays so.
		h.stuck++
		return h.stuck%stuckBeforeReload != 0
	default:
		h.stuck = 0
		return at == h.position
	}
}

// blob encodes the state as a snapshot.
func (h *history) blob() ([]byte, error) {
	game, err := h.rules.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("tile %s: the rules' snapshot failed: %w", h.tile, err)
	}
	_, divided := h.rules.(Divided)
	if divided {
		if err := fence.CheckParts(game); err != nil {
			return nil, fmt.Errorf("tile %s: the snapshot of divided rules must be a list of parts: %w", h.tile, err)
		}
	}
	h.gameBytes = len(game)
	return appendEnvelope(make([]byte, 0, len(game)+h.actions.bytes+64), game, divided, &h.actions), nil
}

// snapshot is the history as a durable snapshot by an owner at a position.
func (h *history) snapshot(at fence.Position, contact string, blob []byte) fence.Snapshot {
	return fence.Snapshot{Position: at, Tick: h.tick, Contact: contact, Sum: fence.Checksum(blob),
		Taken: time.Now(), Blob: blob}
}
