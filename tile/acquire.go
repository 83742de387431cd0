package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/durable"
	"github.com/tilefence/tilefence/tile/internal/retry"
)

// run acquires the tile, with as many epochs as it takes. A processor that has served does not end before the stores
// have answered; others end after BootTimeout. errDrained when ctx ends.
func (a *acquisition) run(ctx context.Context, from source) (acquired, error) {
	held := a.ownership.grant.Epoch
	for attempt := 0; ; attempt++ {
		got, err := a.attempt(ctx, from, held)
		got.source = from
		switch {
		case err == nil:
			a.lap(&a.steps.Installed)
			return got, nil
		case errors.Is(err, errOutlived):
			from = fromStore
		case !errors.Is(err, errStartOver) && !(a.ownership.served && retry.Able(err)):
			return got, a.ownership.quarantine(ctx, a.ownership.grant.Epoch, err)
		}
		a.history.Warm = false
		if attempt >= patientAfter {
			a.reminder.Warn("the tile is claimed again and again", "attempts", attempt+1, "error", err)
		}
		if retry.Sleep(ctx, claimBackoff(attempt)) != nil {
			return got, errDrained
		}
	}
}

// patientAfter is after how many attempts an acquisition waits longer and longer for the next: each takes an epoch, and
// what has refused so many of them will not go away by itself.
const patientAfter = 8

// claimBackoff is retry.Backoff, and goes on doubling to 5 s after patientAfter attempts, with jitter.
func claimBackoff(attempt int) time.Duration {
	if attempt < patientAfter {
		return retry.Backoff(attempt)
	}
	return wait.Backoff(2*retry.MaxBackoff, 5*time.Second, attempt-patientAfter)
}

// attempt is run under one epoch. held is the epoch under which this processor has served.
func (a *acquisition) attempt(ctx context.Context, from source, held fence.Epoch) (acquired, error) {
	a.enter(Claiming)
	if from == fromStore && !a.ownership.served && !a.history.Warm {
		if err := a.look(ctx); err != nil {
			return acquired{}, err
		}
	}
	wait := func() durable.State { return durable.State{} }
	if !a.journals() {
		wait = a.durable.Ask(ctx, &a.beside)
	}
	a.lap(&a.steps.Asked)
	if err := a.ownership.acquire(ctx); err != nil {
		return acquired{}, err
	}
	a.lap(&a.steps.Minted)
	a.enter(Replaying)
	if a.journals() {
		c, err := a.takeJournal(ctx)
		if err != nil {
			return acquired{}, err
		}
		wait = func() durable.State { return c }
	}
	if from == fromMemory {
		return a.restoreFromMemory(ctx, wait(), held)
	}
	if err := a.read(ctx, wait); err != nil {
		return acquired{}, err
	}
	switch at := a.history.Position; {
	case at.Epoch >= a.ownership.grant.Epoch:
		a.ownership.saw(at.Epoch)
		return acquired{}, errStartOver // the authority had forgotten epochs: mint above the stream's
	case at.IsZero():
		return a.withoutHistory(ctx, wait())
	}
	return a.withHistory(ctx, wait())
}

// again gives a serving owner another epoch, at the end of its own history, which every replica has confirmed.
// errStartOver, with the refusal if the install was refused: there is another history.
func (a *acquisition) again(ctx context.Context) (acquired, error) {
	if err := a.ownership.acquire(ctx); err != nil {
		return acquired{}, err
	}
	if a.journals() {
		c, err := a.takeJournal(ctx)
		if err != nil {
			return acquired{}, err
		}
		if c.At != a.history.Position && !(a.writesBehind() && a.behind.has(c.At)) {
			return acquired{}, errOutlived
		}
	}
	return a.install(ctx)
}

// look notes what owner hash and stream know: the epochs, for the mint to be above them, and the tick.
func (a *acquisition) look(ctx context.Context) error {
	return a.ownership.retry(ctx, func() error {
		// A master that hangs is soon replaced, but a client that waits for its answer does not notice.
		ctx, cancel := context.WithTimeout(ctx, a.cfg.CommitTimeout)
		defer cancel()
		now, err := a.seams.Store.Owner(ctx, a.tile)
		if err != nil {
			return err
		}
		last, err := a.seams.Log.Last(ctx, a.tile)
		if err != nil {
			return err
		}
		a.ownership.saw(now.Epoch, last.Epoch)
		if !a.history.Saw(now.Tick) {
			a.cfg.Logger.Error("the tick of the owner hash cannot be; it is ignored", "tick", now.Tick)
		}
		return nil
	})
}

// read makes the history the stream's. A state that was folded before an operator said what to leave out has it.
func (a *acquisition) read(ctx context.Context, wait func() durable.State) error {
	a.steps.Warm = len(a.ownership.skip) == 0 && a.history.Warm && a.catchUp(ctx) && a.history.Divergence == nil
	if !a.steps.Warm {
		h, err := a.recover(ctx)
		if err == nil {
			err = a.replay(&h.Snapshot, h.Entries)
		}
		if errors.Is(err, fence.ErrCorrupt) || errors.Is(err, stream.ErrGap) {
			return a.adviseCheckpoint(err, wait())
		}
		if err != nil {
			return err
		}
	}
	a.compared()
	a.lap(&a.steps.Replayed)
	return nil
}

// catchUp reads what was committed since the follower's last look, and reports whether the state is complete. If
// not, it has to be read anew. The install checks it once more, by position and chain.
func (a *acquisition) catchUp(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for {
		c, err := readTail(ctx, a.seams.Log, a.tile, a.history.Position.Seq)
		switch {
		case err != nil || !a.history.Extend(&c):
			return false
		case len(c.Entries) < stream.DefaultLimit && (!c.Owner.Present() || c.Owner.Position == a.history.Position):
			return true
		}
	}
}

// readTail reads what follows a sequence, and the owner hash.
func readTail(ctx context.Context, log stream.Log, tile fence.TileID, after fence.Seq) (stream.Chunk, error) {
	chunks, err := log.Read(ctx, []stream.Cursor{{Tile: tile, After: after}})
	if err != nil {
		return stream.Chunk{}, err
	}
	return chunks[0], chunks[0].Err
}

// adviseCheckpoint adds to a history that cannot be replayed what an operator can do about it. Whether what is
// left of it is worth more than the checkpoint is not for a program to decide.
func (a *acquisition) adviseCheckpoint(err error, c durable.State) error {
	if c.Err != nil || !c.Found {
		if errors.Is(c.Err, fence.ErrCorrupt) {
			return errors.Join(err, c.Err)
		}
		return err
	}
	k := fence.KeysOf(a.tile)
	return fmt.Errorf("%w; its checkpoint is at %s: to go on from there and lose what came after, "+
		"delete %s and %s, leave %s, each behind the name of the world and a colon if it has one, and run the tile again",
		err, c.At, k.Stream, k.Snapshot, k.Owner)
}
