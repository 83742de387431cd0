package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
)

// cluster is the coordination cluster, for the faults.
type cluster struct {
	stack  *devstack.Stack
	client *redis.ClusterClient
	nodes  map[string]*redis.Client // by address
}

func newCluster(stack *devstack.Stack, client *redis.ClusterClient) *cluster {
	c := &cluster{stack: stack, client: client, nodes: map[string]*redis.Client{}}
	for _, addr := range stack.CoordAddrs {
		c.nodes[addr] = redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 2,
			ContextTimeoutEnabled: true, DialTimeout: 300 * time.Millisecond, ReadTimeout: 5 * time.Second})
	}
	return c
}

func (c *cluster) close() {
	for _, node := range c.nodes {
		_ = node.Close()
	}
}

func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// member is one line of CLUSTER NODES.
type member struct {
	id, addr string
	flags    string
	master   string // id; "-" of a master
	slots    bool   // it serves some
}

func (m *member) isMaster() bool { return m.master == "-" && m.slots }

// members is the cluster as one node sees it.
func (c *cluster) members(ctx context.Context, addr string) ([]member, error) {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	text, err := c.nodes[addr].ClusterNodes(ctx).Result()
	if err != nil {
		return nil, err
	}
	var all []member
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		at, _, _ := strings.Cut(f[1], "@")
		all = append(all, member{id: f[0], addr: at, flags: f[2], master: f[3], slots: len(f) > 8})
	}
	return all, nil
}

// healthy returns nil when all nodes agree that every slot is served, no node is failing, and every replica
// has its master's data.
func (c *cluster) healthy(ctx context.Context) error {
	for addr, node := range c.nodes {
		members, err := c.members(ctx, addr)
		if err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
		masters := 0
		for _, m := range members {
			if m.isMaster() {
				masters++
			}
			if strings.Contains(m.flags, "fail") || strings.Contains(m.flags, "handshake") {
				return fmt.Errorf("%s sees %s as %s", addr, m.addr, m.flags)
			}
		}
		if masters != 3 || len(members) != 6 {
			return fmt.Errorf("%s sees %d masters among %d nodes", addr, masters, len(members))
		}
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		info, err := node.Info(ctx, "replication").Result()
		state, err2 := node.ClusterInfo(ctx).Result()
		cancel()
		switch {
		case errors.Join(err, err2) != nil:
			return fmt.Errorf("%s: %w", addr, errors.Join(err, err2))
		case !strings.Contains(state, "cluster_state:ok"), !strings.Contains(state, "cluster_slots_ok:16384"):
			return fmt.Errorf("%s: the cluster is not ok", addr)
		case !strings.Contains(info, "state=online") && !strings.Contains(info, "master_link_status:up"):
			return fmt.Errorf("%s: replication is not up", addr)
		}
	}
	return nil
}

// awaitHealthy waits until the cluster is healthy. A master that has ended up without a replica, two
// having ended up with one another's, is given one.
func (c *cluster) awaitHealthy(ctx context.Context, within time.Duration) error {
	return await(ctx, within, "the coordination cluster", func() error { return c.healthy(ctx) })
}

// await calls check until it returns nil; the error of a check that never did says what was waited for.
func await(ctx context.Context, within time.Duration, what string, check func() error) error {
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %v: %w", what, within, err)
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// shard is a master with its replica.
type shard struct {
	master, replica *devstack.Process
}

// shardOf finds the shard of a tile.
func (c *cluster) shardOf(ctx context.Context, id fence.TileID) (shard, error) {
	c.client.ReloadState(ctx)
	node, err := c.client.MasterForKey(ctx, fence.KeysOf(id).Owner)
	if err != nil {
		return shard{}, err
	}
	members, err := c.members(ctx, node.Options().Addr)
	if err != nil {
		return shard{}, err
	}
	master := slices.IndexFunc(members, func(m member) bool { return m.addr == node.Options().Addr })
	for _, m := range members {
		if master >= 0 && m.master == members[master].id {
			return shard{master: c.process(members[master].addr), replica: c.process(m.addr)}, nil
		}
	}
	return shard{}, fmt.Errorf("the shard of tile %s has no replica", id)
}

func (c *cluster) process(addr string) *devstack.Process {
	for _, p := range c.stack.Processes() {
		if p.Addr() == addr {
			return p
		}
	}
	return nil
}

// node is a client of one process.
func (c *cluster) node(p *devstack.Process) *redis.Client { return c.nodes[p.Addr()] }

// masters are the addresses of the masters.
func (c *cluster) masters(ctx context.Context) ([]string, error) {
	members, err := c.members(ctx, c.stack.CoordAddrs[0])
	var addrs []string
	for _, m := range members {
		if m.isMaster() {
			addrs = append(addrs, m.addr)
		}
	}
	return addrs, err
}

// awaitPromotion waits until a process serves slots as a master.
func (c *cluster) awaitPromotion(ctx context.Context, p *devstack.Process, within time.Duration) error {
	return await(ctx, within, p.Name()+" is promoted", func() error {
		members, err := c.members(ctx, p.Addr())
		for _, m := range members {
			if m.addr == p.Addr() && m.isMaster() {
				return nil
			}
		}
		return errors.Join(errors.New("it is a replica"), err)
	})
}

// drawTiles draws tiles of which every master has as many, and sorts them.
func (c *cluster) drawTiles(ctx context.Context, rng *rand.Rand) ([]fence.TileID, error) {
	c.client.ReloadState(ctx)
	have := map[string]int{}
	var tiles []fence.TileID
	for len(tiles) < tileCount {
		id := fence.TileID(rng.Uint64()>>1 | 1)
		node, err := c.client.MasterForKey(ctx, fence.KeysOf(id).Owner)
		if err != nil {
			return nil, err
		}
		if addr := node.Options().Addr; have[addr] < tileCount/3 {
			have[addr]++
			tiles = append(tiles, id)
		}
	}
	slices.Sort(tiles)
	return tiles, nil
}
