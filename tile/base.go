package tile

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/recovery"
	"github.com/tilefence/tilefence/tile/internal/durable"
	"github.com/tilefence/tilefence/tile/internal/history"
	"github.com/tilefence/tilefence/tile/internal/retry"
	"github.com/tilefence/tilefence/tile/internal/watch"
)

// incident is something that keeps a serving owner from settling a tick, with all that the owner learns of it.
type incident struct {
	recovery.Evidence
	err        error          // why the batch was not taken; nil if that is not what has happened
	seen       fence.Owner    // what the store has, as far as that is known
	lost       []fence.Commit // what the stream has lost, if this owner has all of it
	superseded error          // why to stand down
	undecided  error          // why the copies do not confirm what an earlier owner has committed
	settle     func() error   // acknowledges the batch
	shown      fence.Epoch    // what watchers were shown
}

// errDrained ends everything that a processor does when its context has ended.
var errDrained = retry.ErrEnded

// base is what all parts of a processor share.
type base struct {
	tile    fence.TileID
	contact string
	seams   Seams
	rules   Rules
	guard   *guarded // the same, for all calls
	cfg     *Config
	inbox   *inbox
	behind  *writeBehind
	history *history.History
	replays *replayWatch
	watch   watch.Owner    // what a follower sees; empty in a processor that does not follow
	beside  sync.WaitGroup // goroutines that wait for a back end or a successor beside the loop
	differs bool           // this follower's state was not the owner's when they were last compared

	failures *slog.Logger // of the rules, which may fail at each tick: sampled
	reminder *slog.Logger // for what may go on for long
	stacks   sync.Map     // the calls and places that have panicked, and whose stack the log has
}

// report passes a refusal, or the error of a back end, to the hook.
func (c *base) report(err error) { hook.Call(c.cfg.Hooks.Refused, RefusalInfo{Tile: c.tile, Err: err}) }

// rulesFailed reports that the game's rules failed. Of panics at one place the first has its stack in the log.
func (c *base) rulesFailed(e *RulesError) {
	log := c.failures
	if e.Stack != nil {
		if _, known := c.stacks.LoadOrStore(e.Call+" "+e.site, true); !known {
			log = c.cfg.Logger.With("stack", string(e.Stack))
		}
	}
	log.Error("the game's rules failed", "tick", e.Tick, "call", e.Call, "error", e)
	c.inbox.update(func(s *Status) { s.Failures, s.Failure, s.FailedAt = s.Failures+1, e, time.Now() })
	hook.Call(c.cfg.Hooks.RulesFailed, e)
}

// resolveFailed reports that the rules failed at the tick being played, with an intent or without.
func (c *base) resolveFailed(err error, in *Intent) {
	e, ok := errors.AsType[*RulesError](err)
	if !ok { // the events do not fit
		e = &RulesError{Tile: c.tile, Tick: c.history.Tick, Call: "Resolve", Err: err}
	}
	e.Intent = in
	c.rulesFailed(e)
}

// commit makes one attempt to append or refresh by Config.Commit, within CommitTimeout. It is not abandoned when the
// processor is stopped: its outcome would be unknown.
func (c *base) commit(ctx context.Context, batch fence.Commit) (fence.Receipt, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.CommitTimeout)
	defer cancel()
	return c.cfg.Commit(ctx, batch)
}

// inspected runs an inspection.
func (c *base) inspected(i inspection) {
	var err error
	func() {
		defer c.guard.judge("Inspect", &err)
		i.f(c.rules, c.history.Position)
	}()
	i.done <- err
}

// inOwnerHash looks up the epoch of a successor, for the clients that will be redirected to it.
func (c *base) inOwnerHash(ctx context.Context, successor string) fence.Owner {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.CommitTimeout)
	defer cancel()
	if now, err := c.seams.Store.Owner(ctx, c.tile); err == nil && now.Contact == successor {
		return now
	}
	return fence.Owner{Tile: c.tile, Contact: successor}
}

// newDurable is the durable store of a tile.
func newDurable(id fence.TileID, s *Seams, c *Config) *durable.Store {
	d := &durable.Store{Tile: id, Checkpoint: s.Checkpoint, Reading: c.BootTimeout, Writing: c.DrainTimeout}
	if c.Durability.Durable() {
		d.Journal = s.Journal
	}
	return d
}

// journals reports whether this tile's batches go to the journal, before they are acknowledged or after.
func (c *base) journals() bool { return c.cfg.Durability.Durable() }

func (c *base) writesThrough() bool { return c.cfg.Durability == WriteThrough }
func (c *base) writesBehind() bool  { return c.cfg.Durability == WriteBehind }

// commitThrough is commit for a tick's batch, which counts only when the journal has it too, if the tile writes
// through. The store comes first, so that the journal never holds what the fence has refused; and it is asked at
// every attempt, which keeps the owner hash alive while the journal hangs. journaling is what the journal took.
func (c *base) commitThrough(ctx context.Context, batch fence.Commit) (r fence.Receipt, journaling time.Duration,
	err error) {
	r, err = c.commit(ctx, batch)
	if !c.writesThrough() {
		return r, 0, err
	}
	unconfirmed, ok := errors.AsType[*fence.UnconfirmedError](err)
	switch {
	case ok && !batch.Install:
		r = unconfirmed.Receipt // on the master, which is all that an ordinary batch needs
	case err != nil:
		return r, 0, err
	}
	if batch.Refresh() {
		return r, 0, err
	}
	began := time.Now()
	if failed := c.journal(context.WithoutCancel(ctx), &batch, r); failed != nil {
		return fence.Receipt{}, time.Since(began), failed
	}
	return r, time.Since(began), err
}

// journal appends a batch that the store has taken.
func (c *base) journal(ctx context.Context, batch *fence.Commit, r fence.Receipt) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.JournalTimeout)
	defer cancel()
	err := c.seams.Journal.Append(ctx, batch.Tile, batch.Entry())
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fence.ErrStale), errors.Is(err, fence.ErrForked):
		return refusedByJournal(err, batch.Tile, batch.Epoch, r.Position)
	}
	return &journalError{StoreError: &fence.StoreError{Op: "journal", Tile: batch.Tile,
		Outcome: fence.ErrUnknownOutcome, Err: err}, receipt: r, restored: errors.Is(err, fence.ErrNoOwner) ||
		errors.Is(err, fence.ErrBehind)}
}

// journalError is a batch that the store has and the journal may not have: it is to be presented again.
type journalError struct {
	*fence.StoreError
	receipt  fence.Receipt
	restored bool // the journal has lost this owner's seal, or entries of it
}

// Unwrap gives the error as callers know it.
func (e *journalError) Unwrap() error { return e.StoreError }

// refusedByJournal is a refusal by the journal as if the store had refused: it was sealed under a higher epoch, or
// under the same one from an authority that was restored. In both cases what it holds may have been acknowledged by
// another owner, so this owner's state is not all there is to the tile: the refusal names a later epoch, and at is
// where the stream ends.
func refusedByJournal(err error, tile fence.TileID, epoch fence.Epoch, at fence.Position) *fence.RefusedError {
	above := epoch + 1
	if r, ok := errors.AsType[*fence.RefusedError](err); ok {
		above = max(above, r.Current.Epoch)
	}
	return &fence.RefusedError{Reason: fence.ErrStale, Tile: tile, Epoch: epoch, Current: fence.Owner{Tile: tile,
		Epoch: above, Position: at}}
}
