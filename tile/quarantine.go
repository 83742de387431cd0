package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/tile/internal/durable"
)

// ErrQuarantined means: the tile's history cannot be folded by the game's rules, and no process runs it until an
// operator has decided (tilectl quarantine). A *QuarantinedError says why. Nothing was queued; try again later.
var ErrQuarantined = errors.New("tile is quarantined")

// QuarantinedError is a tile that is quarantined. The Quarantine is zero in an answer that came over a network.
type QuarantinedError struct {
	Tile       fence.TileID
	Epoch      fence.Epoch // of the quarantine
	Quarantine fence.Quarantine
	Err        error // of the processor that set it: the *RulesError; else nil
}

func (e *QuarantinedError) Error() string {
	if e.Quarantine.By == "" {
		return fmt.Sprintf("tile %s: %v", e.Tile, ErrQuarantined)
	}
	return fmt.Sprintf("tile %s: %v: %s", e.Tile, ErrQuarantined, e.Quarantine)
}

// Is matches ErrQuarantined.
func (e *QuarantinedError) Is(target error) bool { return target == ErrQuarantined }

// Unwrap gives the failure of the rules.
func (e *QuarantinedError) Unwrap() error { return e.Err }

// blameFor is how long a replay that failed is searched for the event that is to blame.
const blameFor = time.Second

// replay makes the history that of a snapshot and entries, without what the operator who lifted a quarantine wants left
// out. If the rules cannot fold what was committed, the error is a *replayError.
func (a *acquisition) replay(s *fence.Snapshot, entries []fence.Entry) error {
	h := a.history
	h.Skip = a.ownership.skip
	defer func() { h.Skip = nil }()
	err := h.Replay(s, entries)
	if failed, ok := errors.AsType[*RulesError](err); ok && s != nil && (!s.IsZero() || len(entries) > 0) {
		h.Warm = false
		return &replayError{RulesError: failed, at: h.Blame(s, entries, blameFor)}
	}
	return err
}

// replayError is a failure of the rules to fold what is stored.
type replayError struct {
	*RulesError
	at fence.EventRef
}

func (e *replayError) Unwrap() error { return e.RulesError }

// quarantine puts the tile into quarantine if err is a *replayError, in place of the grant with the epoch given. The
// error is a *QuarantinedError if that has succeeded. It fails if another process was granted the tile meanwhile, or if
// the authority does not answer; then the tile is as it was, and the next process that replays it tries again.
func (t *ownership) quarantine(ctx context.Context, epoch fence.Epoch, err error) error {
	failed, ok := errors.AsType[*replayError](err)
	if !ok {
		return err
	}
	q := fence.Quarantine{At: failed.at, Skip: t.skip, By: t.contact, Reason: failed.Call + ": " + failed.Err.Error()}
	contact, failure := q.Contact()
	if failure != nil {
		q.Skip = nil
		contact, failure = q.Contact()
	}
	var g fence.Grant
	if failure == nil {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), authorityTimeout)
		defer cancel()
		g, failure = t.seams.Authority.Promote(call, fence.Claim{Tile: t.tile, Contact: contact,
			ID: fence.NewClaimID(), Expected: epoch, Floor: t.floor})
	}
	if lost, ok := errors.AsType[*fence.LostError](failure); ok {
		if met, set := fence.ParseQuarantine(lost.Current.Contact); set && !met.Lifted {
			g, q, failure = lost.Current, met, nil
		}
	}
	if failure != nil {
		t.cfg.Logger.Warn("tile could not be quarantined", "error", failure)
		return failed.RulesError
	}
	t.cfg.Logger.Error("tile is quarantined: its history cannot be folded, and no process runs it until an operator "+
		"has decided; see tilectl quarantine", "epoch", g.Epoch, "event", q.At, "reason", q.Reason, "by", q.By)
	t.grant = fence.Grant{}
	e := &QuarantinedError{Tile: t.tile, Epoch: g.Epoch, Quarantine: q, Err: failed.RulesError}
	t.inbox.quarantined(e)
	hook.Call(t.cfg.Hooks.Quarantined, e)
	return e
}

// liftable reports, as nil, that this processor may take a tile from a quarantine.
func (t *ownership) liftable(g fence.Grant, q fence.Quarantine) error {
	if q.Lifted {
		return nil
	}
	e := &QuarantinedError{Tile: t.tile, Epoch: g.Epoch, Quarantine: q}
	t.inbox.quarantined(e)
	return e
}

// quarantined notes a quarantine: it is the answer to all that waits, or comes.
func (d *inbox) quarantined(e *QuarantinedError) {
	d.update(func(s *Status) {
		s.Quarantine = &QuarantinedError{Tile: e.Tile, Epoch: e.Epoch, Quarantine: e.Quarantine}
	})
}

// skipped replaces the history that was read by the state that it has without what was left out: so that it is left out
// by all who read the tile from now on.
func (a *acquisition) skipped(ctx context.Context, c durable.State) (acquired, error) {
	ends := a.history.Position
	a.enter(Installing)
	a.cfg.Logger.Warn("tile goes on without events that could not be folded",
		"left_out", a.ownership.skip, "stream", ends)
	got, err := a.rebase(ctx, max(c.At.Seq, ends.Seq)+fence.RebaseJump, &ends)
	got.voided = &ends
	return got, err
}
