package tile

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// authorityTimeout bounds one question to the authority: one that accepts connections and never answers
// must not hold up the loop.
const authorityTimeout = 2 * time.Second

// errForgotten means: the authority's record is older than this processor's epoch, or there is none. Only an
// authority that was restored to an older state can say so, since it never lowers an epoch. Nobody has taken
// the tile; the next epoch is minted above this one.
var errForgotten = errors.New("the authority has forgotten this epoch")

// saw notes epochs that somebody knows: whatever is minted next is above them.
func (p *TileProcessor) saw(epochs ...fence.Epoch) {
	for _, e := range epochs {
		p.floor = max(p.floor, e)
	}
}

// acquire gets an epoch from the authority, above every epoch this processor has seen anywhere: by claim if
// nobody holds the tile, by promotion otherwise. It repeats itself for BootTimeout while the authority does not
// answer. Lost to somebody else, the error is a *fence.LostError, or a *SupersededError if this processor held
// the tile.
func (p *TileProcessor) acquire(ctx context.Context) error {
	p.saw(p.grant.Epoch)
	c := fence.Claim{Tile: p.tile, Contact: p.contact, ID: fence.NewClaimID(), Floor: p.floor}
	record, known := p.expected()
	return p.patiently(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, authorityTimeout)
		defer cancel()
		if !known {
			g, err := p.seams.Authority.Lookup(ctx, p.tile)
			if err != nil && !errors.Is(err, fence.ErrNeverOwned) {
				return err
			}
			if err := p.claimable(g, true); err != nil {
				return err
			}
			record, known = g, true
		}
		return p.claim(ctx, &c, &record)
	})
}

// expected is what the authority's record should be without asking: this processor's own grant, or, for a
// follower, the epoch it has seen in the owner hash. That makes the claim conditional on nobody having moved
// since, and saves a round trip.
func (p *TileProcessor) expected() (record fence.Grant, known bool) {
	switch {
	case p.grant.Epoch > 0:
		return p.grant, true
	case p.cfg.Follow && p.watch.epoch() > 0:
		return fence.Grant{Tile: p.tile, Epoch: p.watch.epoch(), Contact: "as seen"}, true
	}
	return fence.Grant{}, false
}

// claim presents c against the record that the authority should have. Where it has another one that is for the
// taking, it tries again on that, in a new attempt; an answer that was lost is for the caller to repeat,
// unchanged.
func (p *TileProcessor) claim(ctx context.Context, c *fence.Claim, record *fence.Grant) error {
	for {
		c.Expected = record.Epoch
		ask := p.seams.Authority.Claim
		if record.Held() {
			ask = p.seams.Authority.Promote
		}
		g, err := ask(ctx, *c)
		var lost *fence.LostError
		switch {
		case err == nil:
			p.grant = g
			return nil
		case errors.Is(err, fence.ErrNeverOwned):
			*record = fence.Grant{}
		case errors.As(err, &lost):
			if err := p.claimable(lost.Current, false); err != nil {
				return err
			}
			*record = lost.Current
		default:
			return err
		}
		c.ID = fence.NewClaimID()
	}
}

// claimable reports, as nil, that this processor may take the tile from the record the authority has.
// lookedUp says that the record was found, rather than that it has just won against this processor. A tile that
// somebody has had and released since is for the taking as long as this processor has served nobody: it has no
// state of its own to lose.
func (p *TileProcessor) claimable(g fence.Grant, lookedUp bool) error {
	held := p.grant
	switch {
	case held.Epoch > g.Epoch, held.Epoch > 0 && held.ID == g.ID:
		return nil // forgotten, or still ours
	case held.Epoch > 0 && (g.Held() || p.owns()):
		return p.supersededBy(ownerOf(g))
	case !g.Held(), p.cfg.Follow && g.Epoch <= p.watch.epoch():
		return nil
	case lookedUp && !p.cfg.Follow && (p.cfg.TakeOver || g.Contact == p.contact):
		return nil
	}
	return &fence.LostError{Tile: p.tile, Current: g}
}

// owns reports whether this processor has served under the epoch it holds.
func (p *TileProcessor) owns() bool {
	s := p.Status().State
	return s == Serving || s == Healing || s == Draining
}

func ownerOf(g fence.Grant) fence.Owner {
	return fence.Owner{Tile: g.Tile, Epoch: g.Epoch, Contact: g.Contact}
}

func (p *TileProcessor) supersededBy(o fence.Owner) error {
	return &SupersededError{Tile: p.tile, Held: p.grant.Epoch, Successor: o}
}

// verify asks the authority whether the tile is still this processor's: nil if it is. If it is not, the error is
// the *SupersededError, or errForgotten; if the authority cannot be asked, its *fence.StoreError. seen is the
// owner that the store named.
func (p *TileProcessor) verify(ctx context.Context, seen fence.Owner) error {
	g, err := p.record(ctx)
	switch {
	case errors.Is(err, fence.ErrNeverOwned):
		return errForgotten
	case err != nil:
		return err
	case p.holds(g):
		return nil
	case g.Epoch < p.grant.Epoch:
		return errForgotten
	case seen.Epoch > g.Epoch:
		return p.supersededBy(seen)
	}
	return p.supersededBy(ownerOf(g))
}

// holds reports whether the authority's record is this processor's grant.
func (p *TileProcessor) holds(g fence.Grant) bool {
	return g.Epoch == p.grant.Epoch && g.ID == p.grant.ID && g.Held()
}

// record asks the authority for the tile's record.
func (p *TileProcessor) record(ctx context.Context) (fence.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, authorityTimeout)
	defer cancel()
	return p.seams.Authority.Lookup(ctx, p.tile)
}

// release gives the tile back if this processor holds it, so that the next owner need not take it over.
func (p *TileProcessor) release(ctx context.Context) {
	if p.grant.Epoch == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.DrainTimeout)
	defer cancel()
	err := p.seams.Authority.Release(ctx, p.grant)
	if err != nil && !errors.Is(err, fence.ErrLost) && !errors.Is(err, fence.ErrNeverOwned) {
		p.cfg.Logger.Warn("tile could not be released; its next owner has to take it over", "tile", p.tile, "err", err)
	}
}
