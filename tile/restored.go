package tile

import (
	"context"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// RestoredInfo is a tile that goes on although coordination had lost its history, and what of it is lost.
type RestoredInfo struct {
	Tile fence.TileID
	From fence.Position // where what it goes on from ends
	At   fence.Position // where it goes on; clients see the sequence jump

	// SnapshotTick is the tick of the state it goes on from. Of a WriteThrough tile that is the last entry's of the
	// journal; Taken is still when the snapshot before it was taken, by the clock of whoever took it.
	SnapshotTick fence.Tick
	Taken        time.Time

	// LostTicks are the ticks that were acknowledged and are lost, LostFor the time that they lasted. Unless Exact,
	// both are bounds: at most as many, if the clocks agree. They count every tick interval from Taken until now,
	// the time in which nobody played included. A follower knows better: it counts to the last tick that it
	// saw in the owner hash, and what can have come between then and when it found the hash gone. Ticks without
	// events are counted like others.
	LostTicks fence.Tick
	LostFor   time.Duration

	// Exact says that LostTicks is no bound: the owner hash was left, and names the last tick; or nothing is lost,
	// because the tile writes through (and its durable store was not put back to an older state), or because of
	// FromMemory.
	Exact bool

	// FromMemory says that the owner was alive, and put back the state that it has in memory: nothing is lost.
	FromMemory bool
}

// restored reports a loss.
func (p *TileProcessor) restored(i RestoredInfo) {
	level := slog.LevelWarn
	if i.LostTicks > 0 {
		level = slog.LevelError
	}
	i.At = p.position
	p.cfg.Logger.Log(context.Background(), level, "coordination had lost the tile's history; it goes on from what was left",
		"tile", p.tile, "from", i.From, "at", i.At, "memory", i.FromMemory, "taken", i.Taken, "lost ticks", i.LostTicks, "lost for", i.LostFor, "exact", i.Exact)
	p.cfg.Hooks.Restored(i)
}

// lossSince is what is lost when a tile goes on from its durable state. ownerHash says that the owner hash was
// left, so that lastSeen is the last tick.
func (p *TileProcessor) lossSince(c *checkpointed, ownerHash bool) RestoredInfo {
	i := RestoredInfo{Tile: p.tile, From: c.at, SnapshotTick: c.tick, Taken: time.UnixMilli(c.snap.Taken)}
	switch {
	case p.writesThrough():
		i.Exact = true
	case ownerHash && p.lastSeen >= c.tick:
		i.LostTicks, i.Exact = p.lastSeen-c.tick, true
	default:
		now := time.Now()
		i.LostTicks = p.ticksBetween(i.Taken, now)
		if w := &p.watch; w.owner.Tick >= c.tick && !w.there.IsZero() {
			// An owner whose hash is gone is refused, or puts it back: it has acknowledged nothing since.
			if !w.gone.IsZero() {
				now = w.gone
			}
			i.LostTicks = min(i.LostTicks, w.owner.Tick-c.tick+p.ticksBetween(w.there, now))
		}
		i.LostTicks += fence.Tick(p.grant.Epoch - c.at.Epoch) // each owner since may have begun with one out of turn
	}
	i.LostFor = time.Duration(i.LostTicks) * p.cfg.TickInterval
	return i
}

// ticksBetween is how many ticks an owner can have played between two times, with those that it had played before
// and not yet told the store, and one that was late.
func (p *TileProcessor) ticksBetween(from, to time.Time) fence.Tick {
	d := max(0, to.Sub(from))
	return fence.Tick(d/p.cfg.TickInterval) + 1 + fence.Tick(p.cfg.RefreshEvery)
}
