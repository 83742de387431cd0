package main

import (
	"context"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// The systems that can break; see spectator.System.
const (
	authority     = "authority"
	coordination  = "coordination"
	delivery      = "fan-out"
	bridgeSystem  = "bridge"
	relaySystem   = "relay"
	gatewaySystem = "gateway"
)

// processFaults are those that need no server to break: they hit processes of the deployment and what
// connects them.
func processFaults() []fault {
	return []fault{
		{"owner killed", "kill -9: no drain and no goodbye. Another host has to notice, and take its tiles over.", killOwner},
		{"owner paused", "A stopped process does not know that time passes. When it wakes, its late commits must be refused.", pauseOwner},
		{"rival take-over", "Another host takes a tile from an owner in good health, which learns it from its next commit.", rival},
		{"owner hash deleted", "Nobody seems to own the tile. The owner asks the authority, and installs itself again.", deleteOwner},
		{"replies lost", "Batches are committed, and the owner is not told. It presents the same batch until it knows.", loseReplies},
		{"store unreachable", "No process reaches the coordination store. The tiles freeze: better late than forked.", cutStore},
		{"bridge stopped", "Nothing is forwarded to the watchers. The owners do not notice, and nothing is lost.", stopBridge},
		{"watchers cut off", "Every watcher's connection breaks. Each comes back with its position, and gets what it missed.", cutRelay},
		{"players cut off", "Every player's connection breaks. A card that was under way still has one outcome.", cutGateway},
	}
}

// pick chooses a tile and the host that serves it.
func (c *chaos) pick() (fence.TileID, *host, error) {
	i := c.rng.IntN(len(c.world)) // chosen by number: the same seed finds the same tile
	for range c.world {
		if h := c.hosts.owner(c.world[i]); h != nil {
			return c.world[i], h, nil
		}
		i = (i + 1) % len(c.world)
	}
	return 0, nil, errNotNow
}

// served lists the tiles that a host serves.
func (c *chaos) served(h *host) []fence.TileID {
	return slices.DeleteFunc(slices.Clone(c.world), func(id fence.TileID) bool { return c.hosts.owner(id) != h })
}

// between is a random duration.
func (c *chaos) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.rng.Int64N(int64(most-least)))
}

func killOwner(_ context.Context, c *chaos) (*strike, error) {
	_, h, err := c.pick()
	if err != nil {
		return nil, err
	}
	// It comes back with nothing, as a supervisor starts it, once others have had the time to take its tiles.
	return &strike{host: h, tiles: c.served(h), lasts: patience, whileIll: true,
		hit:  always(func() { c.hosts.kill(h) }),
		heal: func(context.Context) error { return c.hosts.restart(h) }}, nil
}

func pauseOwner(_ context.Context, c *chaos) (*strike, error) {
	_, h, err := c.pick()
	if err != nil {
		return nil, err
	}
	return &strike{host: h, tiles: c.served(h), lasts: c.between(c.options.silence()/2, 3*c.options.silence()),
		hit: always(func() { h.line.set(paused) }), heal: always(func() { h.line.set(flowing) })}, nil
}

func rival(_ context.Context, c *chaos) (*strike, error) {
	id, h, err := c.pick()
	if err != nil {
		return nil, err
	}
	return &strike{host: h, tiles: []fence.TileID{id}, lasts: patience, whileIll: true,
		hit: func(ctx context.Context) error { return c.tower.TakeOver(ctx, id) }}, nil
}

func deleteOwner(_ context.Context, c *chaos) (*strike, error) {
	id, _, err := c.pick()
	if err != nil {
		return nil, err
	}
	return &strike{tiles: []fence.TileID{id}, system: coordination,
		hit: func(ctx context.Context) error { return c.backends.deleteOwner(ctx, id) }}, nil
}

func loseReplies(_ context.Context, c *chaos) (*strike, error) {
	_, h, err := c.pick()
	if err != nil {
		return nil, err
	}
	return &strike{host: h, tiles: c.served(h), lasts: max(time.Second, 3*c.options.tick),
		hit: always(func() { h.line.set(deaf) }), heal: always(func() { h.line.set(flowing) })}, nil
}

func cutStore(_ context.Context, c *chaos) (*strike, error) {
	l := c.backends.line
	return &strike{system: coordination, tiles: c.world, lasts: c.between(time.Second, 2*time.Second),
		hit: always(func() { l.set(cut) }), heal: always(func() { l.set(flowing) })}, nil
}

// lostCoordination is a fault of both kinds of back ends, with an aim for each.
func lostCoordination(aim func(context.Context, *chaos) (*strike, error)) fault {
	return fault{"coordination lost", "All that the coordination store held is gone. The living owners put their tiles back from memory; the sequence jumps.", aim}
}

func loseTiles(_ context.Context, c *chaos) (*strike, error) {
	lose := c.backends.loseTile
	return &strike{system: coordination, tiles: c.world, hit: always(func() {
		for _, id := range c.world {
			lose(id)
		}
	})}, nil
}

func stopBridge(_ context.Context, c *chaos) (*strike, error) {
	return &strike{system: bridgeSystem, tiles: c.watched(), lasts: c.between(time.Second, 3*time.Second), delivery: true,
		hit: always(func() { c.bridgeLine.set(paused) }), heal: always(func() { c.bridgeLine.set(flowing) })}, nil
}

func cutRelay(_ context.Context, c *chaos) (*strike, error) {
	return &strike{system: relaySystem, tiles: c.watched(), delivery: true, hit: always(c.watchers.cut)}, nil
}

func cutGateway(_ context.Context, c *chaos) (*strike, error) {
	return &strike{system: gatewaySystem, tiles: c.watched(), delivery: true, hit: always(c.players.cut)}, nil
}

// always is for what cannot fail.
func always(f func()) func(context.Context) error {
	return func(context.Context) error {
		f()
		return nil
	}
}

// watched lists the tiles that a client of this process watches.
func (c *chaos) watched() []fence.TileID { return c.world[:min(len(c.world), c.options.clients)] }
