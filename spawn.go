package tilefence

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// ErrFull is what TileServerConfig.Spawn answers when the server has no room for another tile, and what clients get
// when Host.MaxTiles is reached. It is a tile.ErrOverloaded: nothing was queued, and the client may try again later.
var ErrFull = tilehost.ErrFull

// SpawnRequest asks whether a server begins a tile without an owner.
type SpawnRequest struct {
	Tile  fence.TileID
	Tiles int // that the server runs or follows already
}

// Submit queues an intent at its tile and waits for its outcome, as tilehost.Host.Submit does. If the tile has no
// owner and TileServerConfig.Spawn agrees, the server claims it first. The server that the authority gives the tile to
// resolves the intent: a server that loses the race redirects to the winner.
//
// Errors: those of tilehost.Host.Submit; what Spawn answered; what kept the tile from being begun. None of the last
// two has queued anything.
func (s *TileServer) Submit(ctx context.Context, in tile.Intent) (stream.Outcome, error) {
	outcome, err := s.host.Submit(ctx, in)
	away, redirected := errors.AsType[*tile.RedirectError](err)
	if s.cfg.Spawn == nil || !redirected || away.Contact != "" {
		return outcome, err
	}
	if err := s.spawn(ctx, in.Tile); err != nil {
		return 0, err
	}
	return s.host.Submit(ctx, in)
}

// spawnTimeout bounds the begin of a tile, from the decision until it serves.
const spawnTimeout = 10 * time.Second

// spawn begins a tile without an owner, and returns when it serves here. Intents that come for it meanwhile wait
// for the same attempt, which goes on when they give up.
func (s *TileServer) spawn(ctx context.Context, id fence.TileID) error {
	attempt := s.spawning.DoChan(id.String(), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spawnTimeout)
		defer cancel()
		return nil, s.spawnOnce(ctx, id)
	})
	select {
	case done := <-attempt:
		return done.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *TileServer) spawnOnce(ctx context.Context, id fence.TileID) error {
	// The owner hash says that the tile has no owner, or it could not be read: then nothing is begun.
	o, err := s.store.Owner(ctx, id)
	switch {
	case err != nil:
		return err
	case o.Present() && o.Contact != s.contact:
		return &tile.RedirectError{Tile: id, Epoch: o.Epoch, Contact: o.Contact}
	}
	if _, begun := s.host.TileStatus(id); !begun {
		if err := s.cfg.Spawn(ctx, SpawnRequest{Tile: id, Tiles: len(s.host.Status())}); err != nil {
			return err
		}
	}
	if err := s.host.Own(id); err != nil {
		return err
	}
	err = s.host.Await(ctx, id)
	lost, isLost := errors.AsType[*fence.LostError](err)
	if isLost && !alive(s.member, lost.Current.Contact) {
		// The holder has died, or has left without a word, and its owner hash has run out.
		if err := s.host.TakeOver(id); err != nil {
			return err
		}
		err = s.host.Await(ctx, id)
		lost, isLost = errors.AsType[*fence.LostError](err)
	}
	switch {
	case isLost:
		return &tile.RedirectError{Tile: id, Epoch: lost.Current.Epoch, Contact: lost.Current.Contact}
	case err == nil:
		s.cfg.Logger.Info("tile begun for an intent", "tile", id)
	}
	return err
}

// alive reports whether a member takes intents at contact.
func alive(m route.Membership, contact string) bool {
	return slices.ContainsFunc(m.Members(), func(o route.Member) bool { return o.Contact == contact })
}
