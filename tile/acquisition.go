package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/recovery"
	"github.com/tilefence/tilefence/tile/internal/durable"
	"github.com/tilefence/tilefence/tile/internal/retry"
)

// source is where a new owner's state comes from.
type source int

const (
	fromStore  source = iota // the stream: what was committed since if a follower's state is warm, or all of it
	fromMemory               // the state is that of a living owner, and replaces what the store has
)

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

// ifStale decides about a refusal that is stale; any other error is returned.
func (a *acquisition) ifStale(ctx context.Context, err error) error {
	if refused, ok := errors.AsType[*fence.RefusedError](err); ok && errors.Is(err, fence.ErrStale) {
		a.report(err)
		return a.refused(ctx, recovery.ClaimStale, refused)
	}
	return err
}
