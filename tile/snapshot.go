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
	added  int64 // by how much the stream had grown since the last trim
}

// snapshotResult is what became of it.
type snapshotResult struct {
	info  SnapshotInfo
	saved bool  // the snapshot itself was
	added int64 // as in encodedSnapshot
}

// snapshot encodes the state as it is at p.position. Its tick is the last that the store knows of.
func (p *TileProcessor) snapshot() (encodedSnapshot, error) {
	began := time.Now()
	game, err := p.rules.Snapshot()
	if err != nil {
		return encodedSnapshot{}, fmt.Errorf("tile %s: the rules' snapshot failed: %w", p.tile, err)
	}
	p.gameBytes = len(game)
	blob := appendEnvelope(make([]byte, 0, len(game)+64), game, &p.actions)
	return encodedSnapshot{encode: time.Since(began), added: p.memory.added,
		write: fence.SnapshotWrite{Tile: p.tile, Position: p.position, Tick: p.settledTick, Blob: blob}}, nil
}

// snapshotIfDue encodes a snapshot on the tick loop, where the state stands still, and saves it beside
// the loop, where a slow store delays no tick.
func (p *TileProcessor) snapshotIfDue(ctx context.Context) {
	inTurn := turn(p.tile, snapshotTurn, p.tick, p.cfg.SnapshotEvery) != turn(p.tile, snapshotTurn, p.lastTick, p.cfg.SnapshotEvery)
	switch {
	case p.saving, p.tick == p.lastTick: // one at a time, and one a tick
		return
	case p.memory.pressing(): // out of turn; the trim alone may have failed
	case !inTurn, p.position == p.lastSnap:
		return
	}
	w, err := p.snapshot()
	if err != nil {
		p.cfg.Hooks.Snapshotted(SnapshotInfo{Tile: p.tile, At: p.position, Err: err, Alarm: p.memory.alarming()})
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
		saved := info.Err == nil
		p.trimStream(func() (stream.Trimmed, error) {
			return p.seams.Log.Trim(ctx, stream.TrimRequest{Tile: p.tile, Lease: p.cfg.MarkLease, MaxBytes: p.cfg.MaxStreamBytes})
		}, &info)
		p.snapshots <- snapshotResult{info: info, saved: saved, added: w.added}
	}()
}

// snapshotSaved takes the result back on the loop.
func (p *TileProcessor) snapshotSaved(r snapshotResult) {
	p.saving = false
	if r.info.Trimmed != nil {
		p.memory.trimmed(r.info.Trimmed, r.added)
	}
	switch {
	case r.saved:
		p.lastSnap = r.info.At
	case errors.Is(r.info.Err, fence.ErrRegress):
		p.lastSnap = p.position
	default:
		p.cfg.Logger.Warn("snapshot was not saved; the stream keeps its tail", "tile", p.tile, "err", r.info.Err)
	}
	p.cfg.Hooks.Snapshotted(r.info)
}
