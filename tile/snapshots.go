package tile

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/turn"
)

// snapshots saves an owner's snapshots, one at a time, and trims the stream behind them. A snapshot is encoded on the
// loop, where the state does not change, and saved beside it, where a slow store delays no tick.
type snapshots struct {
	*base
	results chan snapshotResult
	saving  bool
	at      fence.Position // of the last that was saved
	tick    fence.Tick     // at which the last was due or tried
}

// snapshotResult is the result of writing a snapshot.
type snapshotResult struct {
	info   SnapshotInfo
	saved  bool  // the snapshot itself was; the trim may have failed
	looked bool  // none was due: the stream was trimmed alone
	added  int64 // by how much the stream had grown since the last trim
}

// saveIfDue saves a snapshot in its turn, or when the stream has grown by enough. settled is the last tick that the
// store knows of.
func (s *snapshots) saveIfDue(ctx context.Context, settled fence.Tick) {
	h, every := s.history, s.cfg.SnapshotEvery
	inTurn := turn.Count(s.tile, turn.Snapshot, h.Tick, every) != turn.Count(s.tile, turn.Snapshot, s.tick, every)
	switch {
	case s.saving, h.Tick == s.tick: // one at a time, and one a tick
		return
	case h.Bound.Pressing(): // out of turn; the trim alone may have failed
	case !inTurn:
		return
	case h.Position == s.at:
		s.tick = h.Tick
		s.look(ctx)
		return
	}
	s.tick = h.Tick
	s.save(ctx, settled)
}

// look trims a stream that has not grown, for what the answer says of its consumers: one may have been shown an epoch
// above this owner's (tileOwner.shownAbove), and in a quiet tile nothing else would tell.
func (s *snapshots) look(ctx context.Context) {
	info, added := SnapshotInfo{Tile: s.tile, At: s.at}, s.history.Bound.Added
	s.saving = true
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
		defer cancel()
		s.trim(ctx, &info)
		s.results <- snapshotResult{info: info, looked: true, added: added}
	}()
}

// save encodes a snapshot and saves it beside the loop; the result comes by way of results.
func (s *snapshots) save(ctx context.Context, settled fence.Tick) {
	h := s.history
	began := time.Now()
	info := SnapshotInfo{Tile: s.tile, At: h.Position}
	blob, err := h.Blob()
	if err != nil {
		info.Err, info.Alarm = err, h.Bound.Alarming()
		hook.Call(s.cfg.Hooks.Snapshotted, info)
		if failed, ok := errors.AsType[*RulesError](err); ok {
			s.rulesFailed(failed)
		} else {
			s.cfg.Logger.Error("snapshot failed", "error", err)
		}
		return
	}
	info.Bytes, info.Encode = len(blob), time.Since(began)
	w := fence.SnapshotWrite{Tile: s.tile, Position: h.Position, Tick: settled, Blob: blob}
	added := h.Bound.Added
	s.saving = true
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
		defer cancel()
		began := time.Now()
		info.Err = s.seams.Store.SaveSnapshot(ctx, w)
		info.Save = time.Since(began)
		saved := info.Err == nil
		s.trim(ctx, &info)
		s.results <- snapshotResult{info: info, saved: saved, added: added}
	}()
}

// trim trims the stream behind a snapshot that was saved or could not be.
func (s *snapshots) trim(ctx context.Context, info *SnapshotInfo) {
	if _, refused := errors.AsType[*fence.RefusedError](info.Err); refused {
		return // another owner's tile, or another owner's snapshot
	}
	t, err := s.seams.Log.Trim(ctx, stream.TrimRequest{Tile: s.tile, Lease: s.cfg.MarkLease,
		MaxBytes: s.cfg.MaxStreamBytes})
	if err != nil {
		info.Err = errors.Join(info.Err, err)
		return
	}
	info.Trimmed, info.Alarm = &t, t.Alarming(s.cfg.MaxStreamBytes)
	log := s.cfg.Logger
	for _, c := range t.Expired {
		log.Warn("consumer stopped moving and no longer holds the stream; it has to resync", "consumer", c)
	}
	for _, c := range t.Evicted {
		log.Error("stream was out of bounds, and its slowest consumer no longer holds it; it has to resync",
			"consumer", c, "limit", s.cfg.MaxStreamBytes)
	}
	if info.Alarm {
		log.Error("stream comes near the bound of its memory", "bytes", t.Bytes, "limit", s.cfg.MaxStreamBytes,
			"entries", t.Entries, "held_by", t.Held)
	}
}

// done takes a result back on the loop.
func (s *snapshots) done(r snapshotResult) {
	s.saving = false
	if r.info.Trimmed != nil {
		s.history.Bound.Trimmed(r.info.Trimmed, r.added)
	}
	switch {
	case r.looked:
		return
	case r.saved, errors.Is(r.info.Err, fence.ErrRegress): // the store has one that is later
		s.at = r.info.At
	default:
		s.reminder.Warn("snapshot was not saved; the stream keeps its tail", "error", r.info.Err)
	}
	hook.Call(s.cfg.Hooks.Snapshotted, r.info)
}

// flush saves a last snapshot and waits for it.
func (s *snapshots) flush(ctx context.Context, settled fence.Tick) {
	s.wait()
	if s.history.Position != s.at {
		s.save(ctx, settled)
		s.wait()
	}
}

// wait waits for the snapshot that is being saved, if any.
func (s *snapshots) wait() {
	if s.saving {
		s.done(<-s.results)
	}
}
