package tilefence

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/tile"
)

// presentTries is how many servers are asked for one presentation: the first, and those that it redirects to.
const presentTries = 3

// present is tile.Seams.Present: it finds the owner of the other tile as a gateway does, by gossip, the owner hash and
// redirects. A tile without an owner is begun here if the server begins tiles.
func (s *TileServer) present(ctx context.Context, p tile.Presentation) (a tile.Answer, err error) {
	for range presentTries {
		moved := false
		contact, unrouted := s.router.Route(ctx, p.To)
		if unrouted != nil || contact == s.contact {
			a, err = s.presented(ctx, p)
			contact = s.contact
		} else {
			a, moved, err = s.presentTo(ctx, contact, p)
		}
		redirect, redirected := errors.AsType[*tile.RedirectError](err)
		switch {
		case redirected:
			s.router.Correct(contact, route.Entry{Tile: p.To, Epoch: redirect.Epoch, Contact: redirect.Contact})
		case errors.Is(err, fence.ErrNotApplied), errors.Is(err, fence.ErrUnknownOutcome):
			s.router.Correct(contact, route.Entry{Tile: p.To})
			if !moved {
				return a, err
			}
		default:
			return a, err
		}
		if redirected && redirect.Contact == "" && unrouted != nil {
			return a, err
		}
	}
	return a, err
}

// presentTo presents to the process at a contact. One that does not answer may be gone while its connections are open:
// when gossip has heard of another owner since, the call ends, and moved is true.
func (s *TileServer) presentTo(
	ctx context.Context, contact string, p tile.Presentation,
) (a tile.Answer, moved bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	before, _ := s.table.Lookup(p.To)
	go func() {
		for wait.For(ctx, presentLook) {
			if e, _ := s.table.Lookup(p.To); e != before && e.Contact != "" && e.Contact != contact {
				cancel(errMoved)
				return
			}
		}
	}()
	a, err = s.peers.Present(ctx, contact, p)
	return a, err != nil && errors.Is(context.Cause(ctx), errMoved), err
}

var errMoved = errors.New("the tile has another owner")

// presentLook is how often it is looked at what gossip knows while an owner has not answered.
const presentLook = 50 * time.Millisecond

// presented takes what another tile presents to one of this server's. If that has no owner and TileServerConfig.Spawn
// agrees, the server begins it first.
func (s *TileServer) presented(ctx context.Context, p tile.Presentation) (tile.Answer, error) {
	a, err := s.host.Present(ctx, p)
	away, redirected := errors.AsType[*tile.RedirectError](err)
	if s.spawner.Decide == nil || !redirected || away.Contact != "" {
		return a, err
	}
	if err := s.spawner.Begin(ctx, p.To); err != nil {
		return tile.Answer{}, err
	}
	return s.host.Present(ctx, p)
}
