package tile

import (
	"context"
	"log/slog"

	"github.com/tilefence/tilefence/internal/hook"
)

// How a follower knows that its state is the owner's: when an owner has encoded a snapshot, it says with its next batch
// what the sum of that state is (stream.Batch.StateSum). A follower that comes to the batch encodes its own state, once
// for each snapshot, and compares. It reads nothing for it. If they differ, it reads the snapshot, to find out where,
// and goes on from there: a follower that takes over serves what the owner had, as far as the snapshots go.

// divergenceCauses is what to look for where rules that fold the same batches have different states.
const divergenceCauses = "Resolve that changes the state; time, chance or the order of a map in Apply; a pointer " +
	"kept from Resolve; hosts that run different versions of the rules; test them with tile/tiletest"

// compared reports what came of comparing the states.
func (c *base) compared() {
	h := c.history
	d := h.Divergence
	if d == nil {
		if c.differs && h.Agreed > 0 {
			c.differs = false
			c.cfg.Logger.Info("follower's state is the owner's again", "at", h.Position)
		}
		return
	}
	h.Divergence, h.Agreed = nil, 0
	i := DivergenceInfo{Tile: c.tile, At: d.At, Tick: d.Tick, Own: d.Own, Stored: d.Stored, Offset: -1,
		Recoded: d.Recoded()}
	if d.Stored != nil {
		i.Offset = firstDifference(d.Own, d.Stored)
	}
	log := c.cfg.Logger.With("at", i.At, "tick", i.Tick, "bytes", len(i.Own), "stored_bytes", len(i.Stored), "offset",
		i.Offset)
	switch {
	case i.Recoded:
		h.Recoded = d.Owner
		log.Warn("the owner encodes the tile's state otherwise: it is another version of the game, or Restore loses " +
			"what Snapshot wrote; the states cannot be compared under this owner")
	default:
		level := slog.LevelError
		if c.differs {
			level = slog.LevelDebug // it was reported, and has not ended
		}
		c.differs = true
		log.Log(context.Background(), level, "follower's state differs from the owner's, of the same batches; it "+
			"goes on from the owner's snapshot", "look_for", divergenceCauses)
	}
	hook.Call(c.cfg.Hooks.Diverged, i)
}

func firstDifference(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
