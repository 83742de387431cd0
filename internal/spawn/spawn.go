// Package spawn begins tiles that have no owner.
package spawn

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/address"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// Spawner begins tiles without an owner on a host. Set all fields but the last before use.
type Spawner struct {
	Host    *tilehost.Host
	Store   fence.Store
	Members route.Membership
	Contact string // of the host
	// Decide says whether a tile begins on a host that has held others: an error refuses it.
	Decide func(ctx context.Context, id fence.TileID, held int) error
	Logger *slog.Logger

	attempts singleflight.Group
}

// timeout bounds the begin of a tile, from the decision until it serves.
const timeout = 10 * time.Second

// Begin begins a tile without an owner, and returns when it serves here. Callers that come for it meanwhile wait for
// the same attempt, which goes on when they give up. The error may be a *tile.RedirectError to the tile's owner.
func (s *Spawner) Begin(ctx context.Context, id fence.TileID) error {
	attempt := s.attempts.DoChan(id.String(), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		return nil, s.once(ctx, id)
	})
	select {
	case done := <-attempt:
		return done.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Spawner) once(ctx context.Context, id fence.TileID) error {
	// The owner hash says that the tile has no owner, or it could not be read: then nothing is begun.
	o, err := s.Store.Owner(ctx, id)
	switch {
	case err != nil:
		return err
	case o.Present() && o.Contact != s.Contact:
		return &tile.RedirectError{Tile: id, Epoch: o.Epoch, Contact: o.Contact}
	}
	if _, begun := s.Host.TileStatus(id); !begun {
		if err := s.Decide(ctx, id, len(s.Host.Status())); err != nil {
			return err
		}
	}
	if err := s.Host.Own(id); err != nil {
		return err
	}
	err = s.Host.Await(ctx, id)
	lost, isLost := errors.AsType[*fence.LostError](err)
	if isLost && !address.Alive(s.Members, lost.Current.Contact) {
		// The holder has died, or has left without a word, and its owner hash has run out.
		if err := s.Host.TakeOver(id); err != nil {
			return err
		}
		err = s.Host.Await(ctx, id)
		lost, isLost = errors.AsType[*fence.LostError](err)
	}
	switch {
	case isLost:
		return &tile.RedirectError{Tile: id, Epoch: lost.Current.Epoch, Contact: lost.Current.Contact}
	case err == nil:
		s.Logger.Info("tile without an owner begun", "tile", id)
	}
	return err
}
