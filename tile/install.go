package tile

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/recovery"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/durable"
)

// readTimeout bounds one reading of the stream.
const readTimeout = 2 * time.Second

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

// install presents the new epoch with a first batch that holds nothing but the claim, until every replica has
// confirmed it. Only then may the tile serve: an install that a failover can undo would let the old owner commit again.
func (a *acquisition) install(ctx context.Context) (got acquired, err error) {
	var blob []byte
	if a.journals() {
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
