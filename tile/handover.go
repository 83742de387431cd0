package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// drainRequest is a call of Drain.
type drainRequest struct {
	successor string
	answer    chan error // capacity 1
}

// errHandedOver ends serve when a successor has taken the tile; a *handedOver names it.
var errHandedOver = errors.New("handed over")

type handedOver struct{ successor fence.Owner }

func (e *handedOver) Error() string {
	return fmt.Sprintf("tile %s: %v to epoch %d at %s", e.successor.Tile, errHandedOver, e.successor.Epoch, e.successor.Contact)
}

func (e *handedOver) Is(target error) bool { return target == errHandedOver }

// drainTo is Drain.
func (p *TileProcessor) drainTo(ctx context.Context, successor string) error {
	switch {
	case successor == p.contact, len(successor) > fence.MaxContact:
		return &fence.ArgumentError{Field: "successor", Value: successor, Want: "another process's address, at most 255 bytes"}
	case successor != "" && p.cfg.Handover == nil:
		return &fence.ArgumentError{Field: "Handover", Value: "nil", Want: "Config.Handover, to ask the successor with"}
	}
	d := drainRequest{successor: successor, answer: make(chan error, 1)}
	select {
	case p.drains <- d:
	case <-p.done:
		return p.redirect()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-d.answer:
		return err
	case <-p.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-d.answer:
		return err
	default:
		return p.redirect() // it ended otherwise before it could
	}
}

// handOver gives the tile to a named successor. On return with nil the processor is serving again; otherwise the
// error ends it. All of it happens within DrainTimeout for the last tick and as much for the successor.
func (p *TileProcessor) handOver(ctx context.Context, d drainRequest) error {
	p.transition(Draining)
	if err := p.settleConfirmed(ctx); err != nil {
		if !errors.Is(err, errUnsettled) {
			d.answer <- p.endedBy(err)
			return err
		}
		p.transition(Serving)
		d.answer <- err
		return nil
	}
	asked := p.askSuccessor(ctx, d.successor)
	err := p.successorOf(ctx, d.successor, asked)
	switch {
	case errors.Is(err, errHandedOver):
		p.cfg.Logger.Info("tile handed over", "tile", p.tile, "epoch", p.grant.Epoch, "successor", d.successor, "at", p.position)
		d.answer <- nil
		return err
	case err != nil:
		d.answer <- p.endedBy(err)
		return err
	}
	if asked == nil {
		asked = fmt.Errorf("tile %s: %s says that it has taken over, and the authority does not know of it", p.tile, d.successor)
	}
	p.cfg.Logger.Warn("successor did not take the tile; it stays", "tile", p.tile, "epoch", p.grant.Epoch, "successor", d.successor, "err", asked)
	p.transition(Serving)
	d.answer <- asked
	return nil
}

// endedBy is what Drain answers when the processor ended instead: a *RedirectError to who superseded it.
func (p *TileProcessor) endedBy(err error) error {
	var sup *SupersededError
	if errors.As(err, &sup) {
		return &RedirectError{Tile: p.tile, Epoch: sup.Successor.Epoch, Contact: sup.Successor.Contact}
	}
	return err
}

// errUnsettled means: the last tick could not be settled and confirmed in time, so the tile was not handed over.
var errUnsettled = errors.New("the last tick was not confirmed by every replica in time; the tile stays")

// settleConfirmed plays a last tick and waits until every replica has confirmed it, so that the successor builds
// on nothing that a failover could undo. errUnsettled when that takes longer than DrainTimeout.
func (p *TileProcessor) settleConfirmed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.DrainTimeout)
	defer cancel()
	p.confirm, p.confirmed = true, false
	defer func() { p.confirm = false }()
	for tries, played := 0, false; ; tries++ {
		var err error
		switch {
		case p.pending != nil:
			err = p.present(ctx)
		case !played:
			played = true
			err = p.play(ctx, time.Now(), 0)
		case p.confirmed:
			return nil
		default: // it is on the master only: ask again, with a refresh
			p.pending = &pendingBatch{formed: time.Now(), commit: fence.Commit{Tile: p.tile, Epoch: p.grant.Epoch, Contact: p.contact,
				Prev: p.position, Tick: p.tick, Replicas: fence.AllReplicas}}
			err = p.present(ctx)
		}
		if errors.Is(err, errDrained) {
			return fmt.Errorf("tile %s: %w", p.tile, errUnsettled) // the time was up in the midst of a repair
		}
		if err != nil {
			return err
		}
		if p.pending == nil && p.confirmed && played {
			return nil
		}
		if sleep(ctx, backoff(tries)) != nil {
			return fmt.Errorf("tile %s: %w", p.tile, errUnsettled)
		}
	}
}

// askSuccessor asks for the take-over and waits for the answer. Nothing is committed meanwhile; intents wait in
// the queue.
func (p *TileProcessor) askSuccessor(ctx context.Context, successor string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.DrainTimeout)
	h := Handover{Tile: p.tile, Epoch: p.grant.Epoch, Position: p.position, From: p.contact, To: successor}
	answer := make(chan error, 1)
	p.beside.Go(func() {
		defer cancel()
		answer <- p.cfg.Handover(ctx, h)
	})
	for {
		select {
		case err := <-answer:
			return err
		case i := <-p.inspect:
			p.inspected(i)
		case r := <-p.snapshots:
			p.snapshotSaved(r)
		case <-ctx.Done():
			select {
			case err := <-answer: // it was there first
				return err
			default:
				return fmt.Errorf("tile %s: hand-over to %s: %w", p.tile, successor, context.Cause(ctx))
			}
		}
	}
}

// successorOf asks the authority what has become of a hand-over; asked is what the successor said. A *handedOver
// when it has the tile, a *SupersededError when somebody else has, nil when the tile is still ours. An authority
// that cannot be asked leaves it at what the successor said. If that was an error the owner goes on: should the
// successor have installed itself, the store will refuse the next commit and say so.
func (p *TileProcessor) successorOf(ctx context.Context, successor string, asked error) error {
	g, err := p.record(context.WithoutCancel(ctx))
	switch {
	case err == nil && p.holds(g):
		return nil
	case err == nil && g.Epoch > p.grant.Epoch && g.Contact == successor:
		return &handedOver{successor: ownerOf(g)}
	case err == nil && g.Epoch >= p.grant.Epoch:
		return p.supersededBy(ownerOf(g))
	case asked != nil:
		return nil //nolint:nilerr // an authority that cannot be asked; see above
	}
	return &handedOver{successor: p.inOwnerHash(ctx, successor)}
}

// inOwnerHash looks up the successor's epoch, for those who will be redirected to it.
func (p *TileProcessor) inOwnerHash(ctx context.Context, successor string) fence.Owner {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.CommitTimeout)
	defer cancel()
	if o, err := p.seams.Store.Owner(ctx, p.tile); err == nil && o.Contact == successor {
		return o
	}
	return fence.Owner{Tile: p.tile, Contact: successor}
}
