package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/internal/retry"
	"github.com/tilefence/tilefence/tile/internal/watch"
)

// errHandedOver ends serve when tileOwner.successor has taken the tile.
var errHandedOver = errors.New("handed over")

// drain plays a last tick for the intents already queued and waits until every replica has it, then saves a
// snapshot and releases the tile; each of the two within DrainTimeout. A batch still pending by then stays
// unresolved, and the tile with its record, for the next owner to take over. The error is never nil.
func (o *tileOwner) drain(ctx context.Context) error {
	o.inbox.enter(Draining, o.ownership.grant.Epoch)
	err := o.settleConfirmed(ctx)
	switch {
	case err == nil:
	case !errors.Is(err, errUnsettled):
		return err
	case o.pending != nil || o.inbox.read().State != Draining:
		o.cfg.Logger.Warn("tile stopped before its last batch was resolved", "waited", o.cfg.DrainTimeout)
		o.ownership.unreleased = err
		return errDrained
	default:
		o.cfg.Logger.Warn("tile stopped before every replica had confirmed its last batches",
			"batches", len(o.kept.Batches), "waited", o.cfg.DrainTimeout)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.cfg.DrainTimeout)
	defer cancel()
	o.snapshots.flush(ctx, o.settled)
	o.behind.flush(ctx)
	o.ownership.release(ctx)
	return errDrained
}

// ErrUnreleased: a tile's owner ended and could not release it. An *UnreleasedError says which, and why.
var ErrUnreleased = errors.New("tile was not released")

// UnreleasedError is a tile that its owner held to the end: a back end did not answer within Config.DrainTimeout.
// Another process takes it when it suspects the owner, at the latest when the owner hash has run out.
type UnreleasedError struct {
	Tile  fence.TileID
	Epoch fence.Epoch // that the owner held
	Err   error       // what kept the owner from releasing it
}

func (e *UnreleasedError) Error() string {
	return fmt.Sprintf("tile %s: %v under epoch %d, so its next owner must take it over: %v", e.Tile, ErrUnreleased,
		e.Epoch, e.Err)
}

// Is matches ErrUnreleased.
func (e *UnreleasedError) Is(target error) bool { return target == ErrUnreleased }

// Unwrap returns what kept the owner from releasing the tile.
func (e *UnreleasedError) Unwrap() error { return e.Err }

// handOver gives the tile to a named successor. On return with nil the processor is serving again; otherwise the
// error ends it. The caller is answered within DrainTimeout for the last tick and as much for the successor.
func (o *tileOwner) handOver(ctx context.Context, d drainCall) error {
	o.inbox.enter(Draining, o.ownership.grant.Epoch)
	stays := o.settleConfirmed(ctx)
	if stays != nil && !errors.Is(stays, errUnsettled) {
		d.answer <- asRedirect(stays)
		return stays
	}
	if o.repairing != nil { // the time was up in its midst
		d.answer <- stays
		if err := o.finishRepair(ctx); err != nil {
			return err
		}
		o.inbox.enter(Serving, o.ownership.grant.Epoch)
		return nil
	}
	if stays == nil {
		stays = o.askSuccessor(ctx, d.successor)
		err := o.successorOf(ctx, d.successor, stays)
		if errors.Is(err, errHandedOver) {
			o.cfg.Logger.Info("tile handed over", "epoch", o.ownership.grant.Epoch, "successor", d.successor,
				"at", o.history.Position)
			d.answer <- nil
			return err
		}
		if err != nil {
			d.answer <- asRedirect(err)
			return err
		}
		if stays == nil {
			stays = fmt.Errorf("tile %s: %s says that it has taken over, and the authority does not know of it", o.tile,
				d.successor)
		}
		o.cfg.Logger.Warn("successor did not take the tile; it stays", "epoch", o.ownership.grant.Epoch,
			"successor", d.successor, "error", stays)
	}
	o.inbox.enter(Serving, o.ownership.grant.Epoch)
	d.answer <- stays
	return nil
}

// asRedirect is what Drain answers when the processor ended instead: a *RedirectError to the owner that superseded it.
func asRedirect(err error) error {
	if sup, ok := errors.AsType[*SupersededError](err); ok {
		return &RedirectError{Tile: sup.Tile, Epoch: sup.Successor.Epoch, Contact: sup.Successor.Contact}
	}
	return err
}

// errUnsettled means: the last tick could not be committed and confirmed in time, so the tile was not handed over.
var errUnsettled = errors.New("the last tick was not confirmed by every replica in time; the tile stays")

// settleConfirmed plays a last tick and waits until every replica has confirmed it, so that the successor builds
// on nothing that a failover could undo. errUnsettled when that takes longer than DrainTimeout.
func (o *tileOwner) settleConfirmed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.cfg.DrainTimeout)
	defer cancel()
	unsettled := fmt.Errorf("tile %s: %w", o.tile, errUnsettled)
	o.confirm, o.confirmed = true, false
	defer func() { o.confirm = false }()
	for tries, played := 0, false; ; tries++ {
		var err error
		switch {
		case o.pending != nil:
			err = o.present(ctx)
		case !played:
			played = true
			err = o.play(ctx, time.Now(), 0)
		case o.confirmed:
			return nil
		default: // it is on the master only: ask again, with a refresh
			o.pending = &pendingBatch{formed: time.Now(), commit: o.next()}
			o.pending.commit.Replicas = fence.AllReplicas
			err = o.present(ctx)
		}
		if errors.Is(err, errDrained) {
			return unsettled // the time was up in the midst of a repair
		}
		if err != nil {
			return err
		}
		if o.pending == nil && o.confirmed && played {
			return nil
		}
		if retry.Sleep(ctx, retry.Backoff(tries)) != nil {
			return unsettled
		}
	}
}

// askSuccessor asks for the take-over and waits for the answer. Nothing is committed meanwhile; intents wait in
// the queue.
func (o *tileOwner) askSuccessor(ctx context.Context, successor string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.cfg.DrainTimeout)
	h := Handover{Tile: o.tile, Epoch: o.ownership.grant.Epoch, Position: o.history.Position, From: o.contact,
		To: successor}
	answer := make(chan error, 1)
	o.beside.Go(func() {
		defer cancel()
		answer <- o.seams.Handover(ctx, h)
	})
	for {
		select {
		case err := <-answer:
			return err
		case i := <-o.inbox.inspections:
			o.inspected(i)
		case r := <-o.snapshots.results:
			o.snapshots.done(r)
		case <-ctx.Done():
			select {
			case err := <-answer: // it was there first
				return err
			default:
				return fmt.Errorf("tile %s: hand-over to %s: %w", o.tile, successor, context.Cause(ctx))
			}
		}
	}
}

// successorOf asks the authority what has become of a hand-over; asked is what the successor said. errHandedOver when
// it has the tile, a *SupersededError when another processor has, nil when the tile is still ours. An authority
// that cannot be asked leaves it at what the successor said. If that was an error the owner goes on: should the
// successor have installed itself, the store will refuse the next commit and say so.
func (o *tileOwner) successorOf(ctx context.Context, successor string, asked error) error {
	g, err := o.ownership.record(context.WithoutCancel(ctx))
	switch {
	case err == nil && o.ownership.holds(g):
		return nil
	case err == nil && g.Epoch > o.ownership.grant.Epoch && g.Contact == successor:
		o.successor = watch.OwnerOf(g)
		return errHandedOver
	case err == nil && g.Epoch >= o.ownership.grant.Epoch:
		return o.ownership.supersededBy(watch.OwnerOf(g))
	case asked != nil:
		return nil //nolint:nilerr // an authority that cannot be asked; see above
	}
	o.successor = o.inOwnerHash(ctx, successor)
	return errHandedOver
}
