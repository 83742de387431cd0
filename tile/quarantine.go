package tile

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/tile/internal/durable"
)

// blameFor is how long a replay that failed is searched for the event that is to blame.
const blameFor = time.Second

// replay makes the history that of a snapshot and entries, without what the operator left out when lifting a
// quarantine. If the rules cannot fold what was committed, the error is a *replayError.
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

// quarantineHung quarantines a tile at whose history the rules hang. The goroutine that was left behind no longer
// counts among the take-overs.
func (a *acquisition) quarantineHung(ctx context.Context) error {
	if a.paced != nil {
		a.paced()
	}
	var failed *replayError
	a.replays.dog.Inspect(func(took time.Duration) {
		failed = &replayError{RulesError: a.replays.failure(took), at: a.replays.at}
	})
	return a.ownership.quarantine(ctx, a.ownership.grant.Epoch, failed)
}

// skipped replaces the history that was read by the state that it has without what was left out: so that it is left out
// by all that read the tile from now on.
func (a *acquisition) skipped(ctx context.Context, c durable.State) (acquired, error) {
	ends := a.history.Position
	a.enter(Installing)
	a.cfg.Logger.Warn("tile goes on without events that could not be folded",
		"left_out", a.ownership.skip, "stream", ends)
	got, err := a.rebase(ctx, max(c.At.Seq, ends.Seq)+fence.RebaseJump, &ends)
	got.voided = &ends
	return got, err
}
