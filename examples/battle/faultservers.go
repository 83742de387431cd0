package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/wait"
)

// serverFaults are those that break servers, which this process must have started.
func serverFaults() []fault {
	return []fault{
		{"master paused", "SIGSTOP. Its replica is promoted; what the old master says when it wakes is stale.",
			pausing(coordination, aMaster, 5*time.Second)},
		{"master killed", "kill -9. Its replica is promoted. What it had not passed on, its owners append again.",
			killing(coordination, aMaster, patience)},
		{"replica paused", "SIGSTOP. The tiles go on, and keep in memory what it has not confirmed.",
			pausing(coordination, aReplica, 2*time.Second)},
		{"replica killed", "kill -9. The tiles go on; it comes back empty and is filled again.",
			killing(coordination, aReplica, 2*time.Second)},
		{"PostgreSQL paused", "SIGSTOP. No tile gets another owner. The owners there are do not ask it, and go on.",
			pausing(authority, thePostgres, 2*time.Second)},
		{"PostgreSQL killed", "kill -9. No tile gets another owner. The owners there are go on; it forgets no epoch.",
			killing(authority, thePostgres, time.Second)},
		{"fan-out node paused", "SIGSTOP. The owners do not notice. Watchers see a gap, and repair it from the store.",
			pausing(delivery, aFanoutNode, 2*time.Second)},
		{"views killed", "kill -9. Relays read the store themselves. It comes back empty, and is used again.",
			killing(relaySystem, theViews, time.Second)},
		lostCoordination(killCoordination),
		{"functions flushed", "FUNCTION FLUSH on every master. The next commit loads the library again.",
			flushFunctions},
	}
}

// underWay is for how long after a server's death an answer that it had sent may still be read.
const underWay = 100 * time.Millisecond

// finder picks a server, and says which tiles depend on it.
type finder func(ctx context.Context, c *chaos) (*devstack.Process, []fence.TileID, error)

// pausing stops a server with SIGSTOP, for up to two seconds more than least, and continues it.
func pausing(system string, find finder, least time.Duration) aim {
	return func(ctx context.Context, c *chaos) (*strike, error) {
		p, tiles, err := find(ctx, c)
		if err != nil {
			return nil, err
		}
		return &strike{system: system, node: p.Name(), tiles: tiles, settles: underWay, delivery: system == delivery,
			lasts: c.between(least, least+2*time.Second),
			hit:   func(context.Context) error { return p.Signal(syscall.SIGSTOP) },
			heal: func(ctx context.Context) error {
				return errors.Join(p.Signal(syscall.SIGCONT), c.whole(ctx, system))
			},
		}, nil
	}
}

// killing kills a server and starts it again, as soon as its tiles are well or after a time.
func killing(system string, find finder, lasts time.Duration) aim {
	return func(ctx context.Context, c *chaos) (*strike, error) {
		p, tiles, err := find(ctx, c)
		if err != nil {
			return nil, err
		}
		return &strike{system: system, node: p.Name(), tiles: tiles, settles: underWay,
			lasts: lasts, whileIll: lasts == patience,
			hit: func(context.Context) error { return p.Signal(os.Kill) },
			heal: func(ctx context.Context) error {
				if err := c.replaced(ctx, p); err != nil {
					return err
				}
				return errors.Join(p.Restart(ctx), c.whole(ctx, system))
			}}, nil
	}
}

// holder finds the master that holds a key of some tile, and which tiles it holds.
func (c *chaos) holder(
	ctx context.Context, cluster *redis.ClusterClient, key func(fence.TileID) string,
) (*devstack.Process, []fence.TileID, error) {
	at := func(id fence.TileID) string {
		node, err := cluster.MasterForKey(ctx, key(id))
		if err != nil {
			return ""
		}
		return node.Options().Addr
	}
	addr := at(c.world[c.rng.IntN(len(c.world))])
	tiles := slices.DeleteFunc(slices.Clone(c.world), func(id fence.TileID) bool { return at(id) != addr })
	for _, p := range c.backends.stack.Processes() {
		if p.Addr() == addr {
			return p, tiles, nil
		}
	}
	return nil, nil, fmt.Errorf("no server of the stack is at %q", addr)
}

func (b *backends) ownerKey(id fence.TileID) string { return b.world.Keys(id).Owner }

func aMaster(ctx context.Context, c *chaos) (*devstack.Process, []fence.TileID, error) {
	return c.holder(ctx, c.backends.coordination, c.backends.ownerKey)
}

func aFanoutNode(ctx context.Context, c *chaos) (*devstack.Process, []fence.TileID, error) {
	p, tiles, err := c.holder(ctx, c.backends.delivery, c.backends.world.Channel)
	watched := c.watched()
	return p, slices.DeleteFunc(tiles, func(id fence.TileID) bool { return !slices.Contains(watched, id) }), err
}

// aReplica picks a replica; the tiles are its master's.
func aReplica(ctx context.Context, c *chaos) (*devstack.Process, []fence.TileID, error) {
	master, tiles, err := aMaster(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	cluster := c.backends.stack.Cluster()
	defer cluster.Close()
	replicas, err := cluster.Replicas(ctx, master)
	if err != nil {
		return nil, nil, err
	}
	return replicas[0], tiles, nil
}

// thePostgres is on the path of no tick.
func thePostgres(_ context.Context, c *chaos) (*devstack.Process, []fence.TileID, error) {
	if p, ok := c.backends.stack.Process("postgres"); ok {
		return p, nil, nil
	}
	return nil, nil, errNotNow
}

// theViews are on the path of no tick, and of no frame.
func theViews(_ context.Context, c *chaos) (*devstack.Process, []fence.TileID, error) {
	if p, ok := c.backends.stack.Process("views"); ok {
		return p, nil, nil
	}
	return nil, nil, errNotNow
}

// killCoordination kills every node at once. They come back empty.
var killCoordination = on(coordination, func(c *chaos) strike {
	return strike{tiles: c.world, lasts: time.Second, settles: underWay,
		hit: func(context.Context) error {
			var errs []error
			for _, p := range c.nodes(coordination) {
				errs = append(errs, p.Signal(os.Kill))
			}
			return errors.Join(errs...)
		},
		heal: func(ctx context.Context) error {
			var all errgroup.Group
			for _, p := range c.nodes(coordination) {
				all.Go(func() error { return p.Restart(ctx) })
			}
			return errors.Join(all.Wait(), c.whole(ctx, coordination))
		}}
})

var flushFunctions = on(coordination, func(c *chaos) strike {
	return strike{tiles: c.world, hit: func(ctx context.Context) error {
		return c.backends.coordination.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return node.FunctionFlush(ctx).Err()
		})
	}}
})

// replaced waits until no tile's keys are on a server. A master that started again before a replica was promoted
// would be the master still, and empty.
func (c *chaos) replaced(ctx context.Context, p *devstack.Process) error {
	return c.until(ctx, "a replica is promoted", func() bool {
		c.backends.coordination.ReloadState(ctx)
		return !slices.ContainsFunc(c.world, func(id fence.TileID) bool {
			node, err := c.backends.coordination.MasterForKey(ctx, c.backends.ownerKey(id))
			return err != nil || node.Options().Addr == p.Addr() || node.Ping(ctx).Err() != nil
		})
	})
}

// whole waits until the coordination cluster is as it was. Other systems are whole at once.
func (c *chaos) whole(ctx context.Context, system string) error {
	if system != coordination {
		return nil
	}
	cluster := c.backends.stack.Cluster()
	defer cluster.Close()
	return c.until(ctx, "the coordination cluster is whole", func() bool { return cluster.Whole(ctx) == nil })
}

// until waits for a condition.
func (c *chaos) until(ctx context.Context, what string, done func() bool) error {
	for !done() {
		if !wait.For(ctx, watchEvery*10) {
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// nodePrefixes are how the stack names the servers of the systems that can break.
var nodePrefixes = []struct{ system, prefix string }{{authority, "postgres"}, {coordination, "coord-"},
	{delivery, "fanout-"}, {bridgeSystem, ""}, {relaySystem, ""}, {gatewaySystem, ""},
	{matchmaking, ""}, {durable, "dynamodb"}}

// systems lists what can break besides the hosts.
func (c *chaos) systems() (all []spectator.System) {
	for _, n := range nodePrefixes {
		s := spectator.System{Name: n.system}
		for _, p := range c.nodes(n.system) {
			s.Nodes = append(s.Nodes, p.Name())
		}
		all = append(all, s)
	}
	return all
}

// nodes are the servers of a system that this process started.
func (c *chaos) nodes(system string) (nodes []*devstack.Process) {
	if c.backends.stack == nil {
		return nil
	}
	for _, p := range c.backends.stack.Processes() {
		for _, n := range nodePrefixes {
			if n.system == system && n.prefix != "" && strings.HasPrefix(p.Name(), n.prefix) {
				nodes = append(nodes, p)
			}
		}
	}
	return nodes
}
