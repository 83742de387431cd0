package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/recovery"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/durable"
	"github.com/tilefence/tilefence/tile/internal/retry"
)

// source is where a new owner's state comes from.
type source int

const (
	fromStore  source = iota // the stream: what was committed since if a follower's state is warm, or all of it
	fromMemory               // the state is that of a living owner, and replaces what the store has
)

// readTimeout bounds one reading of the stream.
const readTimeout = 2 * time.Second

// acquisition makes this processor the tile's owner. There is one way: an epoch from the authority, a history from a
// source, and an install that every replica confirms before the tile is served. The install appends to the history
// that was read, or rebases the tile where the state is not the stream's: a new tile, one restored from its durable
// state, or one that a living owner restores from memory.
type acquisition struct {
	*base
	ownership *ownership
	durable   *durable.Store

	reached  fence.Seq       // the highest sequence that a refusal or the durable store has shown
	replaces *fence.Position // where the history ends that an owner replaces from memory; nil: it cannot be read
	orphaned int             // attempts that found an owner hash without a history
	steps    TakeoverInfo
	lapped   time.Time // when the last step ended
	paced    func()    // ends what Config.Pace has begun; nil: nothing
}

// acquired is what an acquisition came to.
type acquired struct {
	at       fence.Position
	source   source
	claim    *fence.Commit   // the install; nil after a rebase
	voided   *fence.Position // where a stream ended that was replaced because the durable state is later
	restored *RestoredInfo   // coordination had lost the history
}

// errStartOver ends an attempt to acquire a tile, and another begins under a new epoch, above all that was seen:
// another owner committed since the history was read, and a paused master may hold the batch that is now abandoned
// under the old epoch; or the authority had forgotten epochs that others know.
var errStartOver = errors.New("start over under a new epoch")

// errOutlived is errStartOver for an owner that has served: another owner came after it and has committed, so the
// tile's state is what that one has left in the stores.
var errOutlived = fmt.Errorf("another owner came after this one: %w", errStartOver)

// enter enters a state of a first acquisition. A processor that has served stays in Healing.
func (a *acquisition) enter(s State) {
	if !a.ownership.served {
		a.inbox.enter(s, a.ownership.grant.Epoch)
	}
}

// lap adds the time since the last step to one step of a take-over.
func (a *acquisition) lap(step *time.Duration) {
	now := time.Now()
	*step += now.Sub(a.lapped)
	a.lapped = now
}

// saw notes the epochs and the sequence that a store knows.
func (a *acquisition) saw(o fence.Owner) {
	a.ownership.saw(o.Epoch, o.Position.Epoch)
	if o.Position.Seq <= fence.FarSeq {
		a.reached = max(a.reached, o.Position.Seq)
	}
}

// impossible is a *fence.CorruptError if the store has a sequence that no owner comes to.
func (a *acquisition) impossible(at fence.Position) error {
	if at.Seq <= fence.FarSeq {
		return nil
	}
	return &fence.CorruptError{Tile: a.tile, What: "head", At: at, Detail: "no tile comes to a sequence above 2^52: " +
		"the number was not written by an owner, and leaves no room to go on; see the runbook \"A number that cannot be\""}
}

// takeJournal seals the journal under this processor's epoch and reads how far the durable state goes. errStartOver, or
// a *SupersededError, if a later owner has sealed it.
func (a *acquisition) takeJournal(ctx context.Context) (c durable.State, err error) {
	err = a.ownership.retry(ctx, func() (err error) {
		c, err = a.durable.Take(ctx, a.ownership.grant.Epoch)
		return err
	})
	switch {
	case errors.Is(err, fence.ErrStale):
		return c, a.refused(ctx, recovery.ClaimStale,
			refusedByJournal(err, a.tile, a.ownership.grant.Epoch, a.history.Position))
	case err == nil && c.At.Epoch >= a.ownership.grant.Epoch:
		a.saw(fence.Owner{Position: c.At}) // the authority had forgotten epochs
		return c, errOutlived
	}
	return c, err
}

// refusedClaim is the incident of a refusal under an epoch that this processor does not serve yet.
func (a *acquisition) refusedClaim(event recovery.Event, refused *fence.RefusedError) *incident {
	i := &incident{seen: refused.Current}
	i.Event = event
	last := i.seen.Position
	switch {
	case !a.ownership.served: // it has no state of its own to lose
	case event == recovery.ClaimBehind && a.ownership.goneOn(refused):
		i.Earlier = recovery.EarlierSeen
	// A batch of this very epoch is another owner's, also when its owner hash is gone and names it no more: what this
	// processor writes first under an epoch is not refused as stale by what it has written.
	case event == recovery.ClaimStale && !last.IsZero() &&
		(a.ownership.outlived(refused) || last.Epoch == a.ownership.grant.Epoch):
		i.Later = recovery.LaterSeen
	}
	return i
}

// refused carries out what package recovery decides about a claim that a store has refused: a *SupersededError;
// errOutlived to take up what a later owner has left; errStartOver to claim again, above what the store knows. Any
// other error: it is not decided, and is to be tried again.
func (a *acquisition) refused(ctx context.Context, event recovery.Event, refused *fence.RefusedError) error {
	a.saw(refused.Current)
	i := a.refusedClaim(event, refused)
	for {
		switch recovery.Decide(&i.Evidence) {
		case recovery.AskCopies:
			if a.askCopies(ctx, i); i.undecided != nil && !retry.Able(i.undecided) {
				return i.undecided
			}
		case recovery.AskAuthority:
			if err := a.askAuthority(ctx, i); err != nil {
				return err
			}
		case recovery.StandDown:
			return i.superseded
		case recovery.TakeUp:
			return errOutlived
		case recovery.ClaimAgain:
			return errStartOver
		default: // wait
			return i.undecided
		}
	}
}

// askAuthority asks whose the tile is. The error says that it does not answer: what is undecided is then not presented
// again, as after any refusal.
func (a *acquisition) askAuthority(ctx context.Context, i *incident) error {
	if i.Event == recovery.ClaimStale {
		return a.ownership.ask(ctx, i, i.seen)
	}
	return a.ownership.retry(ctx, func() error { return a.ownership.ask(ctx, i, i.seen) })
}

// recover reads snapshot and tail.
func (a *acquisition) recover(ctx context.Context) (h stream.Recovery, err error) {
	err = a.ownership.retry(ctx, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		h, err = stream.Recover(ctx, a.seams.Log, a.tile)
		return err
	})
	return h, err
}

// orphanedBeforeBelieved is how many attempts in a row must find an owner hash without stream and snapshot before they
// are taken for lost. One may have met another claimant that has just begun the tile, or a node that is behind.
const orphanedBeforeBelieved = 5

// withHistory installs the epoch at the end of the history that was read, unless the durable state is later.
func (a *acquisition) withHistory(ctx context.Context, c durable.State) (acquired, error) {
	if c.Err != nil {
		a.cfg.Logger.Warn("durable store cannot be asked; the tile begins from its stream", "at", a.history.Position,
			"error", c.Err)
	} else if c.Found {
		how, err := a.judge(ctx, &c)
		if err != nil {
			return acquired{}, err
		}
		if how != durable.StreamReaches {
			return a.withLaterCheckpoint(ctx, c, how)
		}
	}
	if len(a.ownership.skip) > 0 {
		return a.skipped(ctx, c)
	}
	a.enter(Installing)
	return a.install(ctx)
}

// judge says how the durable state stands to the history that was read. errStartOver if the history, read once more, is
// another one: the two came from different masters, or another owner has committed.
func (a *acquisition) judge(ctx context.Context, c *durable.State) (durable.Standing, error) {
	at := c.At
	if !a.writesThrough() {
		return durable.Compare(a.history.Position, at), nil
	}
	if at == a.history.Position || at.IsZero() {
		return durable.StreamReaches, nil
	}
	h, err := a.recover(ctx)
	if err != nil {
		return 0, err
	}
	how, ok := durable.CompareThrough(&h, a.history.Position, at)
	if !ok {
		return 0, errStartOver
	}
	return how, nil
}

// withLaterCheckpoint rebases a tile whose durable state is later than its stream. The checkpoint may also be ahead
// because an owner that is alive has gone on since the replay, or because the replay came from an old master: then the
// stream does not end where it was read, and the store refuses.
func (a *acquisition) withLaterCheckpoint(ctx context.Context, c durable.State, how durable.Standing) (acquired,
	error) {
	ends := a.history.Position
	if a.ownership.saw(c.At.Epoch); c.At.Epoch >= a.ownership.grant.Epoch {
		return acquired{}, errStartOver
	}
	if how == durable.Ahead {
		if err := a.replay(c.Snap, c.Tail); err != nil {
			return acquired{}, err
		}
	}
	a.cfg.Logger.Warn("tile's stream ends before its checkpoint: entries were lost with their owner; it is rebased",
		"stream", ends, "checkpoint", c.At, "state", how)
	a.enter(Installing)
	got, err := a.rebase(ctx, max(c.At.Seq, ends.Seq)+fence.RebaseJump, &ends)
	got.voided = &ends
	if err == nil && how == durable.Ahead {
		got.restored = a.loss(&c, false)
	}
	return got, err
}

// readDurable reads the durable state, because it is needed, unless c has it already.
func (a *acquisition) readDurable(ctx context.Context, c durable.State) (durable.State, error) {
	if a.cfg.Checkpoint == nil || c.Err == nil {
		return c, nil
	}
	err := a.ownership.retry(ctx, func() (err error) {
		c, err = a.durable.Read(ctx)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("tile %s: reading its checkpoint: %w", a.tile, err)
	}
	return c, nil
}

// withoutHistory begins a tile of which the coordination store has neither stream nor snapshot: from its durable state,
// or empty. Both are a rebase.
func (a *acquisition) withoutHistory(ctx context.Context, c durable.State) (acquired, error) {
	// Without a checkpoint it is unknown how far earlier owners came. Each may have committed for a while
	// before its history was lost, so each epoch before this one moves the beginning up.
	seq := fence.Seq(1) + fence.Seq(a.ownership.grant.Epoch-1)*fence.RebaseJump
	last, err := a.seams.Log.Last(ctx, a.tile)
	if err != nil {
		return acquired{}, err
	}
	if a.orphaned++; !last.IsZero() && a.orphaned < orphanedBeforeBelieved {
		a.ownership.saw(last.Epoch)
		return acquired{}, errStartOver
	}
	if c, err = a.readDurable(ctx, c); err != nil {
		return acquired{}, err
	}
	if c.Found {
		if a.ownership.saw(c.At.Epoch); c.At.Epoch >= a.ownership.grant.Epoch {
			return acquired{}, errStartOver
		}
		seq = c.At.Seq + fence.RebaseJump
	}
	if !last.IsZero() {
		// An owner hash without its stream and snapshot: they were deleted.
		if !c.Found {
			return acquired{}, &fence.CorruptError{Tile: a.tile, What: "history", At: last,
				Detail: "the owner hash names it, but stream and snapshot are gone; " +
					"restore the tile from a checkpoint (Config.Checkpoint)"}
		}
		seq = max(seq, last.Seq+fence.RebaseJump)
	}
	if !c.Found {
		c.Snap, c.Tail = nil, nil
	}
	if err = a.replay(c.Snap, c.Tail); err != nil {
		return acquired{}, err
	}
	a.enter(Installing)
	got, err := a.rebase(ctx, seq, &last)
	if err == nil && c.Found {
		got.restored = a.loss(&c, !last.IsZero())
	}
	return got, err
}

// restoreFromMemory rebases the tile on the state of this owner, which is alive, above what the durable store has: a
// later checkpoint would replace it at the next take-over. errOutlived if what was written through is of a later epoch
// than held: what its owner has acknowledged is not in this one's state.
func (a *acquisition) restoreFromMemory(ctx context.Context, c durable.State, held fence.Epoch) (acquired, error) {
	switch {
	case a.writesThrough() && c.At.Epoch > held:
		return acquired{}, errOutlived
	case c.At.Epoch >= a.ownership.grant.Epoch:
		a.ownership.saw(c.At.Epoch)
		return acquired{}, errStartOver
	}
	return a.rebase(ctx, max(a.reached, a.history.Position.Seq, c.At.Seq)+fence.RebaseJump, a.replaces)
}

// install presents the new epoch with a first batch that holds nothing but the claim, until every replica has
// confirmed it. Only then may the tile serve: an install that a failover can undo would let the old owner commit again.
func (a *acquisition) install(ctx context.Context) (got acquired, err error) {
	var blob []byte
	if a.writesThrough() {
		if blob, err = a.history.Blob(); err != nil {
			return got, err
		}
	}
	_, claim, err := (&stream.Batch{Claim: a.ownership.grant.ID}).Encode()
	if err != nil {
		return got, err
	}
	c := fence.Commit{Tile: a.tile, Epoch: a.ownership.grant.Epoch, Contact: a.contact, Prev: a.history.Position,
		Tick: a.history.Tick, At: time.Now(), Private: claim, Install: true, Replicas: fence.AllReplicas}
	err = a.ownership.retry(ctx, func() error {
		r, err := a.commit(ctx, c)
		a.presented(c.Next(), err)
		switch {
		case err == nil:
			got.at, got.claim = r.Position, &c
			return a.beginDurably(ctx, r.Position, blob)
		case errors.Is(err, fence.ErrReplay), errors.Is(err, fence.ErrBehind), errors.Is(err, fence.ErrForked):
			return errors.Join(errStartOver, err)
		}
		return a.ifStale(ctx, err)
	})
	return got, err
}

// presented notes where this processor begins under an epoch, unless that was refused.
func (a *acquisition) presented(at fence.Position, err error) {
	if _, refused := errors.AsType[*fence.RefusedError](err); !refused {
		a.history.Presents(at)
	}
}

// rebase installs the state at a sequence or above, where it is durable before the tile serves if it writes through.
// replaces is where the store's history ends, as far as this processor has seen. errStartOver: it has gone on, or there
// is something later in the durable store.
func (a *acquisition) rebase(ctx context.Context, seq fence.Seq, replaces *fence.Position) (got acquired, err error) {
	blob, err := a.history.Blob()
	if err != nil {
		return got, err
	}
	r := fence.Rebase{Tile: a.tile, Epoch: a.ownership.grant.Epoch, Contact: a.contact, Seq: seq, Tick: a.history.Tick,
		At: time.Now(), Blob: blob,
		Replicas: fence.AllReplicas, Replaces: replaces}
	told := false
	err = a.ownership.retry(ctx, func() error {
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.CommitTimeout)
		receipt, err := a.seams.Store.Rebase(attempt, r)
		cancel()
		a.presented(r.Next(), err)
		if err == nil {
			got.at = receipt.Position
			return a.beginDurably(ctx, receipt.Position, blob)
		}
		if refused, ok := errors.AsType[*fence.RefusedError](err); ok && a.impossible(refused.Current.Position) != nil {
			err = a.impossible(refused.Current.Position)
		} else if ok && errors.Is(err, fence.ErrBehind) {
			a.report(err)
			decided := a.refused(ctx, recovery.ClaimBehind, refused)
			if errors.Is(decided, errStartOver) && !errors.Is(decided, errOutlived) {
				a.replaces = &refused.Current.Position
			}
			return decided
		}
		if damage, ok := errors.AsType[*fence.CorruptError](err); ok && a.ownership.served {
			// This owner's state is the best there is, so it waits until an operator has removed what no rebase
			// replaces.
			if !told {
				a.cfg.Logger.Error("tile waits with its state in memory until an operator has deleted the key that is "+
					"damaged: see tilectl repair; in a world with a name, keys are behind that name and a colon",
					"stream", fence.KeysOf(a.tile).Stream, "error", damage)
			}
			told = true
			return &fence.StoreError{Op: "rebase", Tile: a.tile, Outcome: fence.ErrNotApplied, Err: damage}
		}
		return a.ifStale(ctx, err)
	})
	return got, err
}

// askCopies asks whether every copy has what an owner of a lower epoch has committed since this one, which has served,
// took the tile. Every copy has lost what this owner installed, then, or the authority was restored. What every copy
// has is kept: this owner stands down, or takes that history up if the other one's owner hash is gone. Until then it
// neither serves nor goes on from memory: what it would replace may be confirmed any moment.
func (a *acquisition) askCopies(ctx context.Context, i *incident) {
	if i.undecided = a.seams.Store.Confirm(ctx, a.tile, i.seen.Position); i.undecided != nil {
		i.Earlier = recovery.EarlierUnconfirmed
		return
	}
	a.cfg.Logger.Error("another owner has gone on with the tile from before this one; that is kept, and what this one "+
		"has committed is lost", "epoch", a.ownership.grant.Epoch, "at", a.history.Position, "other", i.seen.Position,
		"owner", i.seen.Contact)
	i.Earlier = recovery.EarlierLeft
	if i.seen.Present() {
		i.Earlier, i.superseded = recovery.EarlierServes, a.ownership.supersededBy(i.seen)
	}
}

// beginDurably makes the state durable at a position before the tile serves from there, if it writes through.
func (a *acquisition) beginDurably(ctx context.Context, at fence.Position, blob []byte) error {
	err := a.durable.Begin(ctx, a.history.Snapshot(at, a.contact, blob))
	if errors.Is(err, durable.ErrLater) {
		a.cfg.Logger.Warn("durable store refuses the state that the tile was to begin from; it is read again", "at", at,
			"error", err)
		return errStartOver
	}
	return err
}

// ifStale decides about a refusal that is stale; any other error is returned.
func (a *acquisition) ifStale(ctx context.Context, err error) error {
	if refused, ok := errors.AsType[*fence.RefusedError](err); ok && errors.Is(err, fence.ErrStale) {
		a.report(err)
		return a.refused(ctx, recovery.ClaimStale, refused)
	}
	return err
}

// loss is what is lost when a tile goes on from its durable state. ownerHash says that the owner hash was left, so that
// the last tick is known.
func (a *acquisition) loss(c *durable.State, ownerHash bool) *RestoredInfo {
	tick := c.Tick()
	i := &RestoredInfo{Tile: a.tile, From: c.At, SnapshotTick: tick, Taken: c.Snap.Taken}
	switch {
	case a.writesThrough():
		i.Exact = true
	case ownerHash && a.history.Seen >= tick:
		i.LostTicks, i.Exact = a.history.Seen-tick, true
	default:
		i.LostTicks = a.ticksBetween(i.Taken, time.Now())
		if played, ok := a.watch.Played(tick, a.ticksBetween); ok {
			i.LostTicks = min(i.LostTicks, played)
		}
		// each owner since may have begun with one out of turn
		i.LostTicks += fence.Tick(a.ownership.grant.Epoch - c.At.Epoch)
	}
	i.LostFor = time.Duration(i.LostTicks) * a.cfg.TickInterval
	return i
}

// ticksBetween is how many ticks an owner can have played between two times, with those that it had played before
// and not yet shown to the store, and one that was late.
func (a *acquisition) ticksBetween(from, to time.Time) fence.Tick {
	d := max(0, to.Sub(from))
	return fence.Tick(d/a.cfg.TickInterval) + 1 + fence.Tick(a.cfg.RefreshEvery)
}
