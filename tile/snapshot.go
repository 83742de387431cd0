package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// encodedSnapshot is a snapshot on its way to the store.
type encodedSnapshot struct {
	write  fence.SnapshotWrite
	encode time.Duration
}

// snapshotResult is what became of it.
type snapshotResult struct{ info SnapshotInfo }

// snapshot encodes the state as it is at p.position. Its tick is the last that the store knows of.
func (p *TileProcessor) snapshot() (encodedSnapshot, error) {
	began := time.Now()
	game, err := p.rules.Snapshot()
	if err != nil {
		return encodedSnapshot{}, fmt.Errorf("tile %s: the rules' snapshot failed: %w", p.tile, err)
	}
	blob := appendEnvelope(make([]byte, 0, len(game)+64), game, &p.actions)
	return encodedSnapshot{encode: time.Since(began),
		write: fence.SnapshotWrite{Tile: p.tile, Position: p.position, Tick: p.settledTick, Blob: blob}}, nil
}

// snapshotIfDue encodes a snapshot on the tick loop, where the state stands still, and saves it beside
// the loop, where a slow store delays no tick.
func (p *TileProcessor) snapshotIfDue(ctx context.Context) {
	if p.saving || p.position == p.lastSnap ||
		turn(p.tile, snapshotTurn, p.tick, p.cfg.SnapshotEvery) == turn(p.tile, snapshotTurn, p.lastTick, p.cfg.SnapshotEvery) {
		return
	}
	w, err := p.snapshot()
	if err != nil {
		p.cfg.Hooks.Snapshotted(SnapshotInfo{Tile: p.tile, At: p.position, Err: err})
		p.cfg.Logger.Error("snapshot failed", "tile", p.tile, "err", err)
		p.lastTick = p.tick // try again an interval later
		return
	}
	p.lastTick = p.tick
	p.saveSnapshot(ctx, w)
}

func (p *TileProcessor) saveSnapshot(ctx context.Context, w encodedSnapshot) {
	p.saving = true
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.DrainTimeout)
		defer cancel()
		info := SnapshotInfo{Tile: p.tile, At: w.write.Position, Bytes: len(w.write.Blob), Encode: w.encode}
		began := time.Now()
		info.Err = p.seams.Store.SaveSnapshot(ctx, w.write)
		info.Save = time.Since(began)
		if info.Err == nil {
			trimmed, err := p.seams.Log.Trim(ctx, stream.TrimRequest{Tile: p.tile, Lease: p.cfg.MarkLease})
			info.Removed, info.Err = trimmed.Removed, err
			for _, c := range trimmed.Expired {
				p.cfg.Logger.Warn("consumer stopped moving and no longer holds the stream; it has to resync", "tile", p.tile, "consumer", c)
			}
		}
		p.snapshots <- snapshotResult{info: info}
	}()
}

// snapshotSaved takes the result back on the loop.
func (p *TileProcessor) snapshotSaved(r snapshotResult) {
	p.saving = false
	switch {
	case r.info.Err == nil:
		p.lastSnap = r.info.At
	case errors.Is(r.info.Err, fence.ErrRegress):
		p.lastSnap = p.position
	default:
		p.cfg.Logger.Warn("snapshot was not saved; the stream keeps its tail", "tile", p.tile, "err", r.info.Err)
	}
	p.cfg.Hooks.Snapshotted(r.info)
}
