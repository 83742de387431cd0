package players

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
)

// sails is how likely the next goal of a bot is in another tile.
const sails = 0.3

// searchAfter is how many ticks a bot waits for the ship that it had before it looks for it in the next tile of the
// world: longer than a tile takes to decide what arrives.
const searchAfter = 20

// grounds are those of a world, made when they are asked for.
type grounds struct {
	tiles []fence.TileID
	made  sync.Map // fence.TileID → game.Ground
}

func (g *grounds) of(id fence.TileID) (game.Ground, error) {
	if ground, ok := g.made.Load(id); ok {
		return ground.(game.Ground), nil
	}
	ground, err := game.GroundOf(id, g.tiles)
	if err == nil {
		g.made.Store(id, ground)
	}
	return ground, err
}

// follow goes to the tile for which the bot's ship has left, or looks for a ship that it has lost sight of. The bot
// watches the new tile before it leaves the old one.
func (b *Bot) follow(ctx context.Context) error {
	b.mu.Lock()
	from, to := b.tile, b.view.Gone(b.actor)
	if _, here := b.view.ShipOf(b.actor); here {
		if b.sails {
			b.cfg.Measures.Crossings.Add(1)
		}
		b.alone, b.sails = 1, false
	} else if b.alone > 0 {
		b.alone++
	}
	left := to != 0
	if !left && b.alone > searchAfter {
		to = b.world.tiles[(slices.Index(b.world.tiles, from)+1)%len(b.world.tiles)]
	}
	if to == 0 || to == from {
		b.mu.Unlock()
		return nil
	}
	b.sails = left
	want, err := b.settle(to)
	b.mu.Unlock()
	if err == nil {
		err = b.relay.Watch(ctx, to, want...)
	}
	if err == nil {
		err = b.relay.Unsubscribe(ctx, from)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: follow its ship from tile %s to %s: %w", b.actor, from, to, err)
	}
	return nil
}

// settle makes another tile the one that the bot watches, and returns what it wants to see there. b.mu is held.
func (b *Bot) settle(id fence.TileID) ([]fence.Area, error) {
	ground, err := b.world.of(id)
	if err != nil {
		return nil, err
	}
	if b.view, err = game.NewView(ground); err != nil {
		return nil, err
	}
	b.brain.Follow(id, ground, id == b.home)
	want := b.brain.Viewport(b.view)
	b.tile, b.alone, b.at, b.synced, b.broken, b.areas = id, 1, fence.Position{}, 0, nil, fence.Areas(want...)
	b.view.Keep(b.areas)
	return want, nil
}
