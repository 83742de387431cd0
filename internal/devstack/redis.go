package devstack

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

const totalSlots = 16384

// clusterShape describes a Redis Cluster. Replica i (counted from 0) follows master i modulo masters.
type clusterShape struct {
	name              string
	masters, replicas int
	args              []string // of every node, besides those that all clusters have
}

func (c clusterShape) nodes() int { return c.masters + c.replicas }

// slots returns the first and last slot of a master.
func (c clusterShape) slots(master int) (first, last int) {
	return totalSlots * master / c.masters, totalSlots*(master+1)/c.masters - 1
}

// startCluster starts the nodes, joins them, and returns their addresses once the cluster is complete:
// every node sees every slot served and the same members, and every replica holds its master's data.
func (s *Stack) startCluster(ctx context.Context, path string, shape clusterShape) ([]string, error) {
	processes, err := s.startWithPorts(ctx, func() ([]*Process, error) {
		processes := make([]*Process, shape.nodes())
		for i := range processes {
			var err error
			if processes[i], err = s.clusterNode(path, fmt.Sprintf("%s-%d", shape.name, i+1), shape.args); err != nil {
				return nil, err
			}
		}
		return processes, nil
	})
	if err != nil {
		return nil, err
	}
	cluster := newCluster(shape, processes)
	defer cluster.close()
	if err := cluster.form(ctx); err != nil {
		return nil, fmt.Errorf("form the cluster: %w", err)
	}
	return cluster.addrs, nil
}

// startSingle starts a Redis that is in no cluster, and returns its address.
func (s *Stack) startSingle(ctx context.Context, path, name string) (string, error) {
	processes, err := s.startWithPorts(ctx, func() ([]*Process, error) {
		host := s.host()
		port, err := s.ports.pick(host)
		if err != nil {
			return nil, err
		}
		p, err := s.redisServer(path, name, host, port, nil)
		return []*Process{p}, err
	})
	if err != nil {
		return "", err
	}
	return processes[0].addr, nil
}

func (s *Stack) clusterNode(path, name string, more []string) (*Process, error) {
	host := s.host()
	port, err := s.ports.pick(host, busOffset)
	if err != nil {
		return nil, err
	}
	return s.redisServer(path, name, host, port, append([]string{
		// Where a connection fails at once, Redis tries again without the source address; the others would
		// take what they then see for the node's new address.
		"--cluster-announce-ip", host,
		"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(port + busOffset),
		"--cluster-node-timeout", strconv.FormatInt(s.cfg.NodeTimeout.Milliseconds(), 10),
	}, more...))
}

func (s *Stack) redisServer(path, name, host string, port int, more []string) (*Process, error) {
	dir, err := s.dir.sub(name, nil)
	if err != nil {
		return nil, err
	}
	addr := hostPort(host, port)
	return &Process{
		name: name, addr: addr, stack: s,
		program: program{
			path: path,
			args: append([]string{
				"--bind", host, "--bind-source-addr", host,
				// It would refuse every loopback address but 127.0.0.1; nothing else can reach the node anyway.
				"--protected-mode", "no", "--port", strconv.Itoa(port), "--dir", dir,
				"--appendonly", "no", "--save", "", "--maxmemory-policy", "noeviction",
				// A replica is filled at once instead of after five seconds of waiting for others.
				"--repl-diskless-sync-delay", "0",
				// Nothing is kept, so an ending master need not wait for its replicas.
				"--shutdown-timeout", "0",
			}, more...),
			dir:      dir,
			stop:     syscall.SIGTERM,
			orphaned: syscall.SIGKILL,
		},
		ready: func(ctx context.Context, pid int) error { return pingRedis(ctx, addr, pid) },
	}, nil
}

func nodeClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, DialTimeout: time.Second, MaxRetries: -1, PoolSize: 2})
}

// pingRedis returns nil if the server at addr is the process pid. Joining a stranger's node to a cluster
// would damage both.
func pingRedis(ctx context.Context, addr string, pid int) error {
	// The client would repeat a refused connection, and print that it was refused.
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	_ = conn.Close()

	client := nodeClient(addr)
	defer func() { _ = client.Close() }()
	info, err := client.Info(ctx, "server", "persistence").Result()
	if err != nil {
		return err
	}
	if got := infoField(info, "process_id"); got != strconv.Itoa(pid) {
		return fmt.Errorf("%s is served by process %s, not %d", addr, got, pid)
	}
	if infoField(info, "loading") != "0" {
		return fmt.Errorf("%s is loading", addr)
	}
	return nil
}

// infoField returns the value of a "name:value" line, or "".
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// cluster forms a Redis Cluster out of empty nodes. It does what `redis-cli --cluster create` does, but
// introduces every node to every other one at once instead of waiting for gossip.
type cluster struct {
	shape   clusterShape
	addrs   []string
	clients []*redis.Client
	ids     []string
}

func newCluster(shape clusterShape, processes []*Process) *cluster {
	c := &cluster{shape: shape, ids: make([]string, len(processes))}
	for _, p := range processes {
		c.addrs = append(c.addrs, p.addr)
		c.clients = append(c.clients, nodeClient(p.addr))
	}
	return c
}

func (c *cluster) close() {
	for _, client := range c.clients {
		_ = client.Close()
	}
}

func (c *cluster) form(ctx context.Context) error {
	for _, step := range []func(context.Context, int) error{c.assign, c.meet, c.replicate} {
		if err := c.onEveryNode(ctx, step); err != nil {
			return err
		}
	}
	return c.await(ctx, c.complete)
}

func (c *cluster) onEveryNode(ctx context.Context, step func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for node := range c.clients {
		group.Go(func() error { return step(ctx, node) })
	}
	return group.Wait()
}

// assign gives a node an epoch of its own, so that no epochs collide later, and a
// master its slots.
func (c *cluster) assign(ctx context.Context, node int) error {
	client := c.clients[node]
	id, err := client.ClusterMyID(ctx).Result()
	if err != nil {
		return err
	}
	c.ids[node] = id
	if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", node+1).Err(); err != nil {
		return err
	}
	if node >= c.shape.masters {
		return nil
	}
	first, last := c.shape.slots(node)
	return client.ClusterAddSlotsRange(ctx, first, last).Err()
}

// meet introduces a node to the later ones, and returns when it knows all.
func (c *cluster) meet(ctx context.Context, node int) error {
	for _, addr := range c.addrs[node+1:] {
		host, port, err := net.SplitHostPort(addr) // the bus port is the one that Redis expects
		if err != nil {
			return err
		}
		if err := c.clients[node].ClusterMeet(ctx, host, port).Err(); err != nil {
			return err
		}
	}
	return c.await(ctx, func(ctx context.Context) error {
		members, err := c.members(ctx, node)
		if err != nil {
			return err
		}
		if len(members) != c.shape.nodes() {
			return fmt.Errorf("%s knows %d of %d nodes", c.addrs[node], len(members), c.shape.nodes())
		}
		return nil
	})
}

func (c *cluster) replicate(ctx context.Context, node int) error {
	if node < c.shape.masters {
		return nil
	}
	return c.clients[node].ClusterReplicate(ctx, c.ids[c.masterOf(node)]).Err()
}

func (c *cluster) masterOf(replica int) int { return (replica - c.shape.masters) % c.shape.masters }

// await calls check until it returns nil or ctx ends.
func (c *cluster) await(ctx context.Context, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last answer: %w)", context.Cause(ctx), err)
		case <-time.After(pollEvery):
		}
	}
}

// complete returns nil when every node reports a working cluster with the intended members and every
// replica's link is up.
func (c *cluster) complete(ctx context.Context) error {
	want := c.intended()
	for node, client := range c.clients {
		info, err := client.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		if infoField(info, "cluster_state") != "ok" || infoField(info, "cluster_slots_ok") != strconv.Itoa(totalSlots) {
			return fmt.Errorf("%s: cluster not ok: %q", c.addrs[node], info)
		}
		members, err := c.members(ctx, node)
		if err != nil {
			return err
		}
		if !slices.Equal(members, want) {
			return fmt.Errorf("%s sees members %q, not %q", c.addrs[node], members, want)
		}
		if node < c.shape.masters {
			continue
		}
		replication, err := client.Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		if infoField(replication, "master_link_status") != "up" {
			return fmt.Errorf("%s: link to its master is not up", c.addrs[node])
		}
	}
	return nil
}

// intended returns what every node should answer to members.
func (c *cluster) intended() []string {
	var members []string
	for node, id := range c.ids {
		if node < c.shape.masters {
			first, last := c.shape.slots(node)
			members = append(members, fmt.Sprintf("%s master of %d-%d", id, first, last))
		} else {
			members = append(members, fmt.Sprintf("%s slave of %s", id, c.ids[c.masterOf(node)]))
		}
	}
	slices.Sort(members)
	return members
}

// members returns the nodes that node knows and has shaken hands with, sorted, one string each.
func (c *cluster) members(ctx context.Context, node int) ([]string, error) {
	text, err := c.clients[node].ClusterNodes(ctx).Result()
	if err != nil {
		return nil, err
	}
	return parseMembers(text), nil
}

// parseMembers reads the answer of CLUSTER NODES, a line each:
//
//	<id> <address> <flags> <master id or -> <ping> <pong> <epoch> <link state> <slots...>
func parseMembers(text string) []string {
	var members []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			continue
		}
		id, flags, master := fields[0], strings.Split(fields[2], ","), fields[3]
		if slices.Contains(flags, "handshake") || slices.Contains(flags, "noaddr") {
			continue
		}
		of := strings.Join(fields[8:], ",")
		if master != "-" {
			of = master
		}
		members = append(members, id+" "+flagsWithoutSelf(flags)+" of "+of)
	}
	slices.Sort(members)
	return members
}

// flagsWithoutSelf joins the flags that do not depend on which node was asked.
func flagsWithoutSelf(flags []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return f == "myself" }), ",")
}
