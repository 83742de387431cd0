package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/stream/fanout"
)

// serverFaults are those that break servers, which this process must have started.
func serverFaults() []fault {
	return []fault{
		{"master paused", "SIGSTOP. Its replica is promoted meanwhile; when the old master wakes, what it says is stale.", pauseMaster},
		{"master killed", "kill -9. Its replica is promoted. What it had not passed on, the living owners put back.", killMaster},
		{"replica paused", "SIGSTOP. The tiles go on, and keep in memory what it has not confirmed.", pauseReplica},
		{"replica killed", "kill -9. The tiles go on; it comes back empty and is filled again.", killReplica},
		{"PostgreSQL paused", "SIGSTOP. Nobody can become an owner. Those there are do not ask it, and go on.", pausePostgres},
		{"PostgreSQL killed", "kill -9. Nobody can become an owner. Those there are go on; it forgets no epoch.", killPostgres},
		{"fan-out node paused", "SIGSTOP. The owners do not notice. Watchers see a gap, and repair it from the store.", pauseFanout},
		lostCoordination(killCoordination),
		{"functions flushed", "FUNCTION FLUSH on every master. The next commit finds no function, and loads the library again.", flushFunctions},
	}
}

// underWay is for how long after a server's death an answer that it had sent may still be read.
const underWay = 100 * time.Millisecond

// process finds one of the stack's servers by its address.
func (c *chaos) process(addr string) (*devstack.Process, error) {
	for _, p := range c.backends.stack.Processes() {
		if p.Addr() == addr {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no server of the stack is at %q", addr)
}

// master finds the master that holds a key, and which of the tiles are on it by their keys.
func (c *chaos) master(ctx context.Context, cluster *redis.ClusterClient, id fence.TileID, key func(fence.TileID) string) (*devstack.Process, []fence.TileID, error) {
	at := func(id fence.TileID) string {
		node, err := cluster.MasterForKey(ctx, key(id))
		if err != nil {
			return ""
		}
		return node.Options().Addr
	}
	addr := at(id)
	p, err := c.process(addr)
	return p, slices.DeleteFunc(slices.Clone(c.world), func(other fence.TileID) bool { return at(other) != addr }), err
}

func ownerKey(id fence.TileID) string { return fence.KeysOf(id).Owner }

// signals is a strike that stops a server and continues it.
func signals(p *devstack.Process, s strike) *strike {
	s.node, s.settles = p.Name(), underWay
	s.hit = func(context.Context) error { return p.Signal(syscall.SIGSTOP) }
	after := s.heal
	s.heal = func(ctx context.Context) error {
		if err := p.Signal(syscall.SIGCONT); err != nil || after == nil {
			return err
		}
		return after(ctx)
	}
	return &s
}

// kills is a strike that kills a server and starts it again.
func kills(p *devstack.Process, s strike, before, after func(context.Context) error) *strike {
	s.node, s.settles = p.Name(), underWay
	s.hit = func(context.Context) error { return p.Signal(os.Kill) }
	s.heal = func(ctx context.Context) error {
		for _, step := range []func(context.Context) error{before, p.Restart, after} {
			if step == nil {
				continue
			}
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	return &s
}

func pauseMaster(ctx context.Context, c *chaos) (*strike, error) {
	id := c.world[c.rng.IntN(len(c.world))]
	p, tiles, err := c.master(ctx, c.backends.coordination, id, ownerKey)
	if err != nil {
		return nil, err
	}
	return signals(p, strike{system: coordination, tiles: tiles, lasts: c.between(5*time.Second, 7*time.Second), heal: c.whole}), nil
}

func killMaster(ctx context.Context, c *chaos) (*strike, error) {
	id := c.world[c.rng.IntN(len(c.world))]
	p, tiles, err := c.master(ctx, c.backends.coordination, id, ownerKey)
	if err != nil {
		return nil, err
	}
	// Started again before a replica was promoted, it would be the master still, and empty.
	promoted := func(ctx context.Context) error {
		return c.until(ctx, "a replica is promoted", func() bool {
			c.backends.coordination.ReloadState(ctx)
			node, err := c.backends.coordination.MasterForKey(ctx, ownerKey(id))
			return err == nil && node.Options().Addr != p.Addr() && node.Ping(ctx).Err() == nil
		})
	}
	return kills(p, strike{system: coordination, tiles: tiles, lasts: patience, whileIll: true}, promoted, c.whole), nil
}

// killCoordination kills every node at once. They come back empty.
func killCoordination(_ context.Context, c *chaos) (*strike, error) {
	nodes := c.nodes(coordination)
	return &strike{system: coordination, tiles: c.world, lasts: time.Second, settles: underWay,
		hit: func(context.Context) error {
			var errs []error
			for _, p := range nodes {
				errs = append(errs, p.Signal(os.Kill))
			}
			return errors.Join(errs...)
		},
		heal: func(ctx context.Context) error {
			var all errgroup.Group
			for _, p := range nodes {
				all.Go(func() error { return p.Restart(ctx) })
			}
			return errors.Join(all.Wait(), c.whole(ctx))
		}}, nil
}

// replica picks a replica, and says which tiles are on its master.
func (c *chaos) replica(ctx context.Context) (*devstack.Process, []fence.TileID, error) {
	id := c.world[c.rng.IntN(len(c.world))]
	master, tiles, err := c.master(ctx, c.backends.coordination, id, ownerKey)
	if err != nil {
		return nil, nil, err
	}
	shards, err := c.backends.coordination.ClusterShards(ctx).Result()
	if err != nil {
		return nil, nil, err
	}
	for _, s := range shards {
		replica, here := "", false
		for _, n := range s.Nodes {
			addr := net.JoinHostPort(n.IP, strconv.FormatInt(n.Port, 10))
			here = here || addr == master.Addr()
			if n.Role == "replica" {
				replica = addr
			}
		}
		if here && replica != "" {
			p, err := c.process(replica)
			return p, tiles, err
		}
	}
	return nil, nil, errNotNow
}

func pauseReplica(ctx context.Context, c *chaos) (*strike, error) {
	p, tiles, err := c.replica(ctx)
	if err != nil {
		return nil, err
	}
	return signals(p, strike{system: coordination, tiles: tiles, lasts: c.between(2*time.Second, 4*time.Second), heal: c.whole}), nil
}

func killReplica(ctx context.Context, c *chaos) (*strike, error) {
	p, tiles, err := c.replica(ctx)
	if err != nil {
		return nil, err
	}
	return kills(p, strike{system: coordination, tiles: tiles, lasts: 2 * time.Second}, nil, c.whole), nil
}

func (c *chaos) postgres() (*devstack.Process, error) {
	p, ok := c.backends.stack.Process("postgres")
	if !ok {
		return nil, errNotNow
	}
	return p, nil
}

func pausePostgres(_ context.Context, c *chaos) (*strike, error) {
	p, err := c.postgres()
	if err != nil {
		return nil, err
	}
	return signals(p, strike{system: authority, lasts: c.between(2*time.Second, 4*time.Second)}), nil
}

func killPostgres(_ context.Context, c *chaos) (*strike, error) {
	p, err := c.postgres()
	if err != nil {
		return nil, err
	}
	return kills(p, strike{system: authority, lasts: time.Second}, nil, nil), nil
}

func pauseFanout(ctx context.Context, c *chaos) (*strike, error) {
	id := c.world[c.rng.IntN(len(c.world))]
	p, tiles, err := c.master(ctx, c.backends.delivery, id, fanout.Channel)
	if err != nil {
		return nil, err
	}
	watched := c.watched()
	tiles = slices.DeleteFunc(tiles, func(id fence.TileID) bool { return !slices.Contains(watched, id) })
	return signals(p, strike{system: delivery, tiles: tiles, lasts: c.between(2*time.Second, 4*time.Second), delivery: true}), nil
}

func flushFunctions(_ context.Context, c *chaos) (*strike, error) {
	return &strike{system: coordination, tiles: c.world, hit: func(ctx context.Context) error {
		return c.backends.coordination.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return node.FunctionFlush(ctx).Err()
		})
	}}, nil
}

// whole waits until the coordination cluster is as it was: all nodes there, all slots served, and every
// replica up to date. A second fault before that could be more than it is built to survive.
func (c *chaos) whole(ctx context.Context) error {
	var nodes []*redis.Client
	for _, addr := range c.backends.stack.CoordAddrs {
		nodes = append(nodes, redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second}))
	}
	defer func() {
		for _, n := range nodes {
			_ = n.Close() // they only read
		}
	}()
	return c.until(ctx, "the coordination cluster is whole", func() bool {
		return !slices.ContainsFunc(nodes, func(n *redis.Client) bool { return !inOrder(ctx, n, len(nodes)) })
	})
}

// inOrder reports whether a node of a cluster thinks that all is well.
func inOrder(ctx context.Context, node *redis.Client, known int) bool {
	info, err := node.ClusterInfo(ctx).Result()
	if err != nil {
		return false
	}
	for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", fmt.Sprintf("cluster_known_nodes:%d", known)} {
		if !strings.Contains(info, want) {
			return false
		}
	}
	nodes, err := node.ClusterNodes(ctx).Result()
	if err != nil || strings.Contains(nodes, "fail") {
		return false
	}
	replication, err := node.Info(ctx, "replication").Result()
	return err == nil && (strings.Contains(replication, "state=online") || strings.Contains(replication, "master_link_status:up"))
}

// until waits for a condition.
func (c *chaos) until(ctx context.Context, what string, done func() bool) error {
	for !done() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		case <-time.After(watchEvery * 10):
		}
	}
	return nil
}

// systems lists what can break besides the hosts.
func (c *chaos) systems() []spectator.System {
	all := []spectator.System{{Name: authority}, {Name: coordination}, {Name: delivery}, {Name: bridgeSystem}, {Name: relaySystem}, {Name: gatewaySystem}}
	if c.backends.stack == nil {
		return all
	}
	for i := range all {
		for _, p := range c.nodes(all[i].Name) {
			all[i].Nodes = append(all[i].Nodes, p.Name())
		}
	}
	return all
}

// nodePrefixes are how the stack names the servers of a system.
var nodePrefixes = map[string]string{authority: "postgres", coordination: "coord-", delivery: "fanout-"}

// nodes are the servers of a system that this process started.
func (c *chaos) nodes(system string) []*devstack.Process {
	prefix, known := nodePrefixes[system]
	return slices.DeleteFunc(c.backends.stack.Processes(), func(p *devstack.Process) bool { return !known || !strings.HasPrefix(p.Name(), prefix) })
}
