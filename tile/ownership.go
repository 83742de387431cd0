package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/recovery"
	"github.com/tilefence/tilefence/tile/internal/retry"
	"github.com/tilefence/tilefence/tile/internal/watch"
)

// ErrSuperseded means: another processor owns the tile. Run ends with a *SupersededError, which is information
// more than failure: the loser has redirected its clients and wrote nothing more.
var ErrSuperseded = errors.New("superseded")

// SupersededError names the successor.
type SupersededError struct {
	Tile      fence.TileID
	Held      fence.Epoch // this processor's epoch
	Successor fence.Owner // its epoch and contact; the contact is empty if only the authority knew of it
}

func (e *SupersededError) Error() string {
	return fmt.Sprintf("tile %s: epoch %d %v by epoch %d at %s", e.Tile, e.Held, ErrSuperseded, e.Successor.Epoch,
		e.Successor.Contact)
}

// Is matches ErrSuperseded.
func (e *SupersededError) Is(target error) bool { return target == ErrSuperseded }

// authorityTimeout bounds one question to the authority: one that accepts connections and never answers
// must not hold up the loop.
const authorityTimeout = 2 * time.Second

// ownership is a processor's right to its tile, as the authority grants it.
type ownership struct {
	*base
	grant     fence.Grant
	floor     fence.Epoch      // the highest epoch seen anywhere: the next one is minted above it
	served    bool             // the processor has served the tile: it has a state of its own to lose
	abandoned fence.Grant      // another process's, which did not take the tile: it may be taken from there
	skip      []fence.EventRef // what it leaves out of the history, since it claims the tile from a lifted quarantine

	released   bool  // it does not hold the tile any more
	unreleased error // what kept it from releasing the tile
}

// saw notes epochs that some store knows.
func (t *ownership) saw(epochs ...fence.Epoch) {
	for _, e := range epochs {
		t.floor = max(t.floor, e)
	}
}

// retry repeats f while a back end does not answer: for BootTimeout at most before this processor has served, and as
// long as it takes once it has.
func (t *ownership) retry(ctx context.Context, f func() error) error {
	limit := t.cfg.BootTimeout
	if t.served {
		limit = 0
	}
	return retry.Do(ctx, limit, t.report, f)
}

// acquire gets an epoch from the authority, above every epoch seen: by claim if no processor holds the tile, by
// promotion otherwise. Lost to another, the error is a *fence.LostError, or a *SupersededError if this processor held
// the tile.
func (t *ownership) acquire(ctx context.Context) error {
	t.saw(t.grant.Epoch)
	c := fence.Claim{Tile: t.tile, Contact: t.contact, ID: fence.NewClaimID(), Floor: t.floor}
	record, known := t.expected()
	return t.retry(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, authorityTimeout)
		defer cancel()
		if !known {
			g, err := t.seams.Authority.Lookup(ctx, t.tile)
			if err != nil && !errors.Is(err, fence.ErrNeverOwned) {
				return err
			}
			if err := t.claimable(g, true); err != nil {
				return err
			}
			record, known = g, true
		}
		return t.claim(ctx, &c, &record)
	})
}

// expected is what the authority's record should be without asking: this processor's own grant, or a later one that was
// abandoned, or, for a follower, the epoch that it has seen in the owner hash. That makes the claim conditional on no
// other claim since, and saves a round trip.
func (t *ownership) expected() (record fence.Grant, known bool) {
	switch {
	case t.abandoned.Epoch > t.grant.Epoch:
		return t.abandoned, true
	case t.grant.Epoch > 0:
		return t.grant, true
	case t.watch.Epoch() > 0:
		return fence.Grant{Tile: t.tile, Epoch: t.watch.Epoch(), Contact: "as seen"}, true
	}
	return fence.Grant{}, false
}

// claim presents c against the record that the authority should have. If it has another one that may be taken, claim
// tries again on that, in a new attempt; an answer that was lost is for the caller to repeat, unchanged.
func (t *ownership) claim(ctx context.Context, c *fence.Claim, record *fence.Grant) error {
	for {
		c.Expected = record.Epoch
		ask := t.seams.Authority.Claim
		if record.Held() {
			ask = t.seams.Authority.Promote
		}
		g, err := ask(ctx, *c)
		var lost *fence.LostError
		switch {
		case err == nil:
			t.grant = g
			if q, ok := fence.ParseQuarantine(record.Contact); ok {
				t.skip = q.Skip
			}
			return nil
		case errors.Is(err, fence.ErrNeverOwned):
			*record = fence.Grant{}
		case errors.As(err, &lost):
			if err := t.claimable(lost.Current, false); err != nil {
				return err
			}
			*record = lost.Current
		default:
			return err
		}
		c.ID = fence.NewClaimID()
	}
}

// claimable reports, as nil, that this processor may take the tile from the record that the authority has. lookedUp
// says that the record was found, rather than that it has just won against this processor. A tile that was released
// by another owner since may be taken as long as this processor has served no client.
func (t *ownership) claimable(g fence.Grant, lookedUp bool) error {
	held := t.grant
	if q, ok := fence.ParseQuarantine(g.Contact); ok && !t.served && held.Epoch <= g.Epoch {
		return t.liftable(g, q)
	}
	switch {
	case held.Epoch > g.Epoch, held.Epoch > 0 && held.ID == g.ID:
		return nil // forgotten, or still ours
	case held.Epoch > 0 && (g.Held() || t.served):
		return t.supersededBy(watch.OwnerOf(g))
	case !g.Held(), t.cfg.Follow && g.Epoch <= t.watch.Epoch():
		return nil
	case lookedUp && !t.cfg.Follow && (t.cfg.TakeOver || g.Contact == t.contact):
		return nil
	}
	return &fence.LostError{Tile: t.tile, Current: g}
}

// liftable reports, as nil, that this processor may take a tile from a quarantine.
func (t *ownership) liftable(g fence.Grant, q fence.Quarantine) error {
	if q.Lifted {
		return nil
	}
	e := &QuarantinedError{Tile: t.tile, Epoch: g.Epoch, Quarantine: q}
	t.inbox.quarantined(e)
	return e
}

func (t *ownership) supersededBy(o fence.Owner) error {
	return &SupersededError{Tile: t.tile, Held: t.grant.Epoch, Successor: o}
}

// outlived reports whether a refusal shows an epoch above this owner's, or the same at another contact. Epochs come
// from the authority alone, so another processor was granted the tile after this one, whatever the authority says now.
func (t *ownership) outlived(refused *fence.RefusedError) bool {
	c := refused.Current
	twin := c.Epoch == t.grant.Epoch && c.Contact != "" && c.Contact != t.contact
	return twin || max(c.Epoch, c.Position.Epoch) > t.grant.Epoch
}

// goneOn reports whether a refusal shows that another owner, of an epoch that is not above this processor's, has
// committed since this one took the tile.
func (t *ownership) goneOn(refused *fence.RefusedError) bool {
	now, at := refused.Current, refused.Current.Position
	if at.IsZero() || now.Contact == t.contact || max(now.Epoch, at.Epoch) >= t.grant.Epoch {
		return false
	}
	return t.history.Departed(at)
}

// ask asks the authority whether the tile is still this processor's, and notes its answer as evidence. The error is
// that of an authority that is Silent. seen is the owner that the store named.
func (t *ownership) ask(ctx context.Context, i *incident, seen fence.Owner) error {
	g, err := t.record(ctx)
	switch {
	case errors.Is(err, fence.ErrNeverOwned):
		i.Authority = recovery.Forgotten
	case err != nil:
		i.Authority = recovery.Silent
		return err
	case t.holds(g):
		i.Authority = recovery.Ours
	case g.Epoch < t.grant.Epoch:
		i.Authority = recovery.Forgotten
	default:
		i.Authority, i.superseded = recovery.Superseded, t.supersededBy(watch.OwnerOf(g))
		if seen.Epoch > g.Epoch {
			i.superseded = t.supersededBy(seen)
		}
	}
	return nil
}

// holds reports whether the authority's record is this processor's grant.
func (t *ownership) holds(g fence.Grant) bool {
	return g.Epoch == t.grant.Epoch && g.ID == t.grant.ID && g.Held()
}

// record asks the authority for the tile's record.
func (t *ownership) record(ctx context.Context) (fence.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, authorityTimeout)
	defer cancel()
	return t.seams.Authority.Lookup(ctx, t.tile)
}

// release gives the tile up if this processor holds it, so that the next owner need not take it over.
func (t *ownership) release(ctx context.Context) {
	if t.grant.Epoch == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.cfg.DrainTimeout)
	defer cancel()
	err := t.seams.Authority.Release(ctx, t.grant)
	if err != nil && !errors.Is(err, fence.ErrLost) && !errors.Is(err, fence.ErrNeverOwned) {
		t.cfg.Logger.Warn("tile could not be released; its next owner has to take it over", "error", err)
		t.unreleased = err
		return
	}
	t.released = true
}
