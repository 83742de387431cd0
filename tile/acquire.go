package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// source is where a new owner's state comes from.
type source int

const (
	fromStore    source = iota // snapshot and tail are read anew
	fromFollower               // the state is a follower's: only what was committed since is read
	fromMemory                 // the state is that of a living owner, and replaces what the store has
)

// readTimeout bounds one reading of the stream.
const readTimeout = 2 * time.Second

// acquisition makes this processor the tile's owner. There is one way: an epoch from the authority, a history from a
// source, and an install that every replica confirms before the tile is served. The install appends to the history
// that was read, or rebases the tile where the state is not the stream's: a new tile, one restored from its durable
// state, or one that a living owner restores from memory.
type acquisition struct {
	*core
	title   *title
	history *history
	durable *durable
	watch   *watch

	reached  fence.Seq // the highest sequence that a refusal or the durable store has shown
	orphaned int       // attempts that found an owner hash without a history
	steps    TakeoverInfo
	lapped   time.Time // when the last step ended
}

// acquired is what an acquisition came to.
type acquired struct {
	at       fence.Position
	source   source
	claim    *fence.Commit   // the install; nil after a rebase
	voided   *fence.Position // where a stream ended that was replaced because the durable state is later
	restored *RestoredInfo   // coordination had lost the history
}

// errOutlived is errStartOver for an owner that has served: another owner came after it and has committed, so the tile's
// state is what that one has left in the stores.
var errOutlived = fmt.Errorf("another owner came after this one: %w", errStartOver)

// run acquires the tile, with as many epochs as it takes. A processor that has served does not end before the stores
// have answered; others end after BootTimeout. errDrained when ctx ends.
func (a *acquisition) run(ctx context.Context, from source) (acquired, error) {
	held := a.title.grant.Epoch
	for attempt := 0; ; attempt++ {
		got, err := a.attempt(ctx, from, held)
		got.source = from
		switch {
		case err == nil:
			a.lap(&a.steps.Installed)
			return got, nil
		case errors.Is(err, errOutlived), from == fromFollower && errors.Is(err, errStartOver):
			from = fromStore
		case !errors.Is(err, errStartOver) && !(a.title.served && retryable(err)):
			return got, err
		}
		if sleep(ctx, backoff(attempt)) != nil {
			return got, errDrained
		}
	}
}

// attempt is run under one epoch. held is the epoch under which this processor has served.
func (a *acquisition) attempt(ctx context.Context, from source, held fence.Epoch) (acquired, error) {
	a.enter(Claiming)
	if from == fromStore && !a.title.served {
		if err := a.look(ctx); err != nil {
			return acquired{}, err
		}
	}
	wait := func() checkpointed { return checkpointed{} }
	if from != fromMemory && !a.writesThrough() {
		wait = a.durable.ask(ctx)
	}
	a.lap(&a.steps.Asked)
	if err := a.title.acquire(ctx); err != nil {
		return acquired{}, err
	}
	a.lap(&a.steps.Minted)
	a.enter(Replaying)
	if a.writesThrough() {
		c, err := a.takeJournal(ctx)
		if err != nil {
			return acquired{}, err
		}
		wait = func() checkpointed { return c }
	}
	if from == fromMemory {
		return a.restoreFromMemory(ctx, wait(), held)
	}
	if err := a.read(ctx, from, wait); err != nil {
		return acquired{}, err
	}
	switch at := a.history.position; {
	case at.Epoch >= a.title.grant.Epoch:
		a.title.saw(at.Epoch)
		return acquired{}, errStartOver // the authority had forgotten epochs: mint above the stream's
	case at.IsZero():
		return a.withoutHistory(ctx, wait())
	}
	return a.withHistory(ctx, wait())
}

// enter enters a state of a first acquisition. A processor that has served stays in Healing.
func (a *acquisition) enter(s State) {
	if !a.title.served {
		a.desk.enter(s, a.title.grant.Epoch)
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
	a.title.saw(o.Epoch, o.Position.Epoch)
	a.reached = max(a.reached, o.Position.Seq)
}

// retry repeats f for as long as this processor may wait.
func (a *acquisition) retry(ctx context.Context, f func() error) error {
	return retry(ctx, a.title.patience(), a.report, f)
}

// look notes what owner hash and stream know: the epochs, for the mint to be above them, and the tick.
func (a *acquisition) look(ctx context.Context) error {
	return a.retry(ctx, func() error {
		// A master that hangs is soon replaced, but a client that waits for its answer does not notice.
		ctx, cancel := context.WithTimeout(ctx, a.cfg.CommitTimeout)
		defer cancel()
		owner, err := a.seams.Store.Owner(ctx, a.tile)
		if err != nil {
			return err
		}
		last, err := a.seams.Log.Last(ctx, a.tile)
		if err != nil {
			return err
		}
		a.title.saw(owner.Epoch, last.Epoch)
		a.history.seen = max(a.history.seen, owner.Tick)
		return nil
	})
}

// takeJournal seals the journal under this processor's epoch and reads how far the durable state goes. errStartOver, or
// a *SupersededError, if a later owner has sealed it.
func (a *acquisition) takeJournal(ctx context.Context) (c checkpointed, err error) {
	err = a.retry(ctx, func() (err error) {
		c, err = a.durable.take(ctx, a.title.grant.Epoch)
		return err
	})
	switch {
	case errors.Is(err, fence.ErrStale):
		return c, a.contested(ctx, refusedByJournal(err, a.tile, a.title.grant.Epoch, a.history.position))
	case err == nil && c.at.Epoch >= a.title.grant.Epoch:
		a.saw(fence.Owner{Position: c.at}) // the authority had forgotten epochs
		return c, errOutlived
	}
	return c, err
}

// contested asks the authority after a store has named a higher epoch. It returns a *SupersededError; errStartOver if
// the authority says that the tile is ours, or has forgotten it: then the store knows an epoch that the authority
// does not, and the next one is minted above it; or the authority's error.
func (a *acquisition) contested(ctx context.Context, refused *fence.RefusedError) error {
	a.saw(refused.Current)
	if err := a.title.verify(ctx, refused.Current); err != nil && !errors.Is(err, errForgotten) {
		return err
	}
	if a.title.served && a.title.outlived(refused) && !refused.Current.Position.IsZero() {
		return errOutlived
	}
	return errStartOver
}

// read makes the history the stream's.
func (a *acquisition) read(ctx context.Context, from source, wait func() checkpointed) error {
	a.steps.Warm = from == fromFollower && a.catchUp(ctx)
	if !a.steps.Warm {
		h, err := a.recover(ctx)
		if err == nil {
			err = a.history.replay(&h.Snapshot, h.Entries)
		}
		if errors.Is(err, fence.ErrCorrupt) || errors.Is(err, stream.ErrGap) {
			return a.adviseCheckpoint(err, wait())
		}
		if err != nil {
			return err
		}
	}
	a.lap(&a.steps.Replayed)
	return nil
}

// recover reads snapshot and tail.
func (a *acquisition) recover(ctx context.Context) (h stream.Recovery, err error) {
	err = a.retry(ctx, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		h, err = stream.Recover(ctx, a.seams.Log, a.tile)
		return err
	})
	return h, err
}

// catchUp reads what was committed since the follower's last look, and reports whether the state is complete. If
// not, it has to be read anew. The install checks it once more, by position and chain.
func (a *acquisition) catchUp(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for {
		c, err := readTail(ctx, a.seams.Log, a.tile, a.history.position.Seq)
		switch {
		case err != nil || !a.history.extend(&c):
			return false
		case len(c.Entries) < stream.DefaultLimit && (!c.Owner.Present() || c.Owner.Position == a.history.position):
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
func (a *acquisition) adviseCheckpoint(err error, c checkpointed) error {
	if c.err != nil || !c.found {
		if errors.Is(c.err, fence.ErrCorrupt) {
			return errors.Join(err, c.err)
		}
		return err
	}
	k := fence.KeysOf(a.tile)
	return fmt.Errorf("%w; its checkpoint is at %s: to go on from there and lose what came after, delete %s and %s, leave %s, and run the tile again",
		err, c.at, k.Stream, k.Snapshot, k.Owner)
}
