package tile

import (
	"context"
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/fence"
)

// outlived reports whether a refusal shows an epoch above this owner's, or the same in somebody else's hand. Epochs
// come from the authority alone, so somebody was granted the tile after this owner, whatever the authority says
// now.
func (p *TileProcessor) outlived(refused *fence.RefusedError) bool {
	c := refused.Current
	twin := c.Epoch == p.grant.Epoch && c.Contact != "" && c.Contact != p.contact
	return twin || max(c.Epoch, c.Position.Epoch) > p.grant.Epoch
}

// outlivedError ends the repair of a history: while it went on, somebody was granted the tile whom the authority
// has forgotten since.
type outlivedError struct{ owner fence.Owner }

func (e *outlivedError) Error() string {
	return fmt.Sprintf("tile %s: epoch %d at %s came after this owner", e.owner.Tile, e.owner.Epoch, e.owner.Contact)
}

// rejoin is what an owner does that the store calls stale although the authority, put back to an older state,
// knows nobody after it. Somebody was granted the tile since and may have served, so this owner's state is not
// the tile's any more: a rebase on it would void what every replica has confirmed. It takes the tile as a
// successor does, under an epoch above both, from the history that the store has. Who served meanwhile is
// refused in turn, asks the authority, and stands down.
func (p *TileProcessor) rejoin(ctx context.Context, refused *fence.RefusedError) error {
	if refused.Current.Position.IsZero() {
		return p.heal(ctx, refused) // there is no history but this owner's
	}
	return p.rejoinLater(ctx, p.abandon(refused), refused.Current)
}

// rejoinLater takes the tile back from a later owner, without a pending batch, and returns to a state.
func (p *TileProcessor) rejoinLater(ctx context.Context, back State, later fence.Owner) error {
	p.rejoining = true
	defer func() { p.rejoining = false }()
	for attempt := 0; ; attempt++ {
		err := p.rejoinOnce(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, errStartOver) && !retryable(err) {
			return err
		}
		if sleep(ctx, backoff(attempt)) != nil {
			return errDrained
		}
	}
	p.transition(back)
	p.cfg.Logger.Warn("tile was replayed from a later owner whom the authority had forgotten", "tile", p.tile, "epoch", p.grant.Epoch,
		"forgotten", later.Epoch, "at", p.position)
	p.cfg.Hooks.Healed(HealInfo{Tile: p.tile, Rejoined: true, At: p.position})
	return nil
}

func (p *TileProcessor) rejoinOnce(ctx context.Context) error {
	if err := p.mintWhileServing(ctx); err != nil {
		return err
	}
	p.lastSeen = max(p.lastSeen, p.tick)
	durable := p.askCheckpoint(ctx)
	if err := p.askJournal(ctx, durable); err != nil {
		return err
	}
	if err := p.recover(ctx, durable); err != nil {
		return err
	}
	if p.position.Epoch >= p.grant.Epoch {
		p.saw(p.position.Epoch)
		return errStartOver
	}
	if p.position.IsZero() {
		return p.bootWithoutHistory(ctx, durable, p.moveTo) // it was lost since the refusal
	}
	if p.writesThrough() {
		if later, err := p.laterCheckpoint(ctx, durable, p.moveTo); err != nil || later {
			return err
		}
	}
	at, err := p.presentInstall(ctx, true)
	if err != nil {
		return err
	}
	p.settledTick = p.tick
	p.moveTo(at)
	return nil
}
