package main

import (
	"context"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/tile"
)

// The systems that can break; see spectator.System.
const (
	authority     = "authority"
	coordination  = "coordination"
	delivery      = "fan-out"
	bridgeSystem  = "bridge"
	relaySystem   = "relay"
	gatewaySystem = "gateway"
	matchmaking   = "matchmaking"
	durable       = "durable store"
)

// processFaults are those that need no server to break: they hit processes of the deployment and what connects them.
func processFaults() []fault {
	return []fault{
		{"owner killed", "kill -9: no drain and no goodbye. Another host has to notice, and take its tiles over.",
			// It comes back with nothing, as a supervisor starts it, once others have had the time to take its tiles.
			onOwner(func(c *chaos, _ fence.TileID, h *host) strike {
				return strike{tiles: c.served(h), lasts: patience, whileIll: true,
					hit:  always(func() { c.hosts.kill(h) }),
					heal: func(context.Context) error { return c.hosts.restart(h) }}
			})},
		{"owner paused", "A stopped process does not know that time passes. Its late commits are refused.",
			onOwner(func(c *chaos, _ fence.TileID, h *host) strike {
				lasts := c.between(c.options.silence()/2, 3*c.options.silence())
				return broken(h.line, faultinject.Paused, lasts, c.served(h))
			})},
		{"owner cut off", "It lives, and reaches no store, authority or gossip. Another takes its tiles over; what " +
			"it decided alone is refused.",
			onOwner(func(c *chaos, _ fence.TileID, h *host) strike { return c.cutOff(h) })},
		{"rival take-over", "Another host takes a tile from an owner in good health, which its next commit tells.",
			onOwner(func(c *chaos, id fence.TileID, h *host) strike {
				return strike{tiles: []fence.TileID{id}, lasts: patience, whileIll: true,
					hit: func(ctx context.Context) error { return c.tower.TakeOver(ctx, id) }}
			})},
		{"replies lost", "Batches are committed, and the owner is not told. It presents the same batch until it knows.",
			onOwner(func(c *chaos, _ fence.TileID, h *host) strike {
				return broken(h.line, faultinject.Deaf, max(time.Second, 3*c.options.tick), c.served(h))
			})},
		{"owner hash deleted", "The tile seems to have no owner. Its owner asks the authority and installs again.",
			on(coordination, func(c *chaos) strike {
				id := c.world[c.rng.IntN(len(c.world))]
				return strike{tiles: []fence.TileID{id},
					hit: func(ctx context.Context) error { return c.backends.deleteOwner(ctx, id) }}
			})},
		{"store unreachable", "No process reaches the coordination store. The tiles freeze: better late than forked.",
			on(coordination, func(c *chaos) strike {
				return broken(c.backends.line, faultinject.Cut, c.between(time.Second, 2*time.Second), c.world)
			})},
		{"bridge stopped", "Nothing is forwarded to the watchers. The owners do not notice, and nothing is lost.",
			on(bridgeSystem, func(c *chaos) strike {
				return broken(c.bridgeLine, faultinject.Paused, c.between(time.Second, 3*time.Second), nil)
			})},
		{"watchers cut off", "Every watcher's connection breaks. Each comes back with its position, and gets the rest.",
			on(relaySystem, func(c *chaos) strike { return strike{hit: always(c.watchers.Cut)} })},
		{"players cut off", "Every player's connection breaks. A card that was under way still has one outcome.",
			on(gatewaySystem, func(c *chaos) strike { return strike{hit: always(c.players.Cut)} })},
		viewersStorm(),
	}
}

// lostCoordination is a fault of both kinds of back ends, with an aim for each.
func lostCoordination(aim aim) fault {
	return fault{"coordination lost", "All that the coordination store held is gone. The living owners restore their " +
		"tiles from memory; the sequence jumps.", aim}
}

var loseTiles = on(coordination, func(c *chaos) strike {
	return strike{tiles: c.world, hit: always(func() {
		for _, id := range c.world {
			c.backends.loseTile(id)
		}
	})}
})

// cutOff parts a host that lives from the stores, the authority and the other members until others serve its tiles. It
// is over when the host is back and has learnt that they are not its own: meanwhile it may commit nothing to them.
func (c *chaos) cutOff(h *host) strike {
	tiles := c.served(h)
	held := map[fence.TileID]fence.Epoch{}
	for _, id := range tiles {
		held[id] = h.status(id).Epoch
	}
	return strike{tiles: tiles, lasts: patience, whileIll: true, fenced: true,
		hit: always(func() {
			h.line.Set(faultinject.Cut)
			h.member.part()
		}),
		heal: func(ctx context.Context) error {
			h.line.Set(faultinject.Flowing)
			if err := h.member.rejoin(); err != nil {
				return err
			}
			return c.until(ctx, "a host that was cut off knows what it has lost", func() bool {
				return !slices.ContainsFunc(tiles, func(id fence.TileID) bool {
					s := h.status(id)
					// A battle that ends before others have taken a tile leaves it to its owner.
					return s.State == tile.Serving && s.Epoch == held[id] && c.meters.vitals.takenAfter(id, held[id])
				})
			})
		}}
}

// onOwner aims at the host that serves some tile.
func onOwner(strikes func(*chaos, fence.TileID, *host) strike) aim {
	return func(_ context.Context, c *chaos) (*strike, error) {
		i := c.rng.IntN(len(c.world)) // chosen by number: the same seed finds the same tile
		for range c.world {
			if h := c.hosts.owner(c.world[i]); h != nil {
				s := strikes(c, c.world[i], h)
				s.host = h
				return &s, nil
			}
			i = (i + 1) % len(c.world)
		}
		return nil, errNotNow
	}
}

// on aims at a system. Behind the coordination store it is clients that suffer.
func on(system string, strikes func(*chaos) strike) aim {
	return func(_ context.Context, c *chaos) (*strike, error) {
		s := strikes(c)
		if s.system = system; system != coordination {
			s.tiles, s.delivery = c.watched(), true
		}
		return &s, nil
	}
}

// broken is a line that is in another state for a while.
func broken(l *faultinject.Line, state faultinject.State, lasts time.Duration, tiles []fence.TileID) strike {
	return strike{tiles: tiles, lasts: lasts,
		hit: always(func() { l.Set(state) }), heal: always(func() { l.Set(faultinject.Flowing) })}
}

// served lists the tiles that a host serves.
func (c *chaos) served(h *host) []fence.TileID {
	return slices.DeleteFunc(slices.Clone(c.world), func(id fence.TileID) bool { return c.hosts.owner(id) != h })
}

// watched lists the tiles that a client of this process watches.
func (c *chaos) watched() []fence.TileID { return c.world[:min(len(c.world), c.options.clients)] }

// between is a random duration.
func (c *chaos) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.rng.Int64N(int64(most-least)))
}

// always is for what cannot fail.
func always(f func()) func(context.Context) error {
	return func(context.Context) error {
		f()
		return nil
	}
}
