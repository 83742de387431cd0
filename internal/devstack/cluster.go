package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/internal/wait"
)

// Cluster is a Redis Cluster of a stack as its nodes see it, each asked by itself: for tests that break nodes. Create
// one with [Stack.Cluster].
type Cluster struct {
	shape     clusterShape
	processes []*Process
	clients   []*redis.Client // of the processes, in their order
}

// Cluster returns the coordination cluster. Close it after use.
func (s *Stack) Cluster() *Cluster {
	shape := s.cfg.coordShape()
	var nodes []*Process
	for _, p := range s.Processes() {
		if strings.HasPrefix(p.name, shape.name+"-") {
			nodes = append(nodes, p)
		}
	}
	return s.newCluster(shape, nodes)
}

func (s *Stack) newCluster(shape clusterShape, processes []*Process) *Cluster {
	c := &Cluster{shape: shape, processes: processes}
	for _, p := range processes {
		c.clients = append(c.clients, s.nodeClient(p.addr))
	}
	return c
}

// Close closes the connections.
func (c *Cluster) Close() {
	for _, client := range c.clients {
		_ = client.Close()
	}
}

// Processes returns the nodes, sorted by name.
func (c *Cluster) Processes() []*Process { return slices.Clone(c.processes) }

// Node returns the client of one node, which follows no redirection.
func (c *Cluster) Node(p *Process) *redis.Client { return c.clients[slices.Index(c.processes, p)] }

// form makes a cluster out of empty nodes. It does what `redis-cli --cluster create` does, but introduces every node
// to every other one at once instead of waiting for gossip.
func (c *Cluster) form(ctx context.Context) error {
	for _, step := range []func(context.Context, int) error{c.assign, c.meet, c.replicate} {
		group, ctx := errgroup.WithContext(ctx)
		for node := range c.clients {
			group.Go(func() error { return step(ctx, node) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return await(ctx, c.Whole)
}

// assign gives a node an epoch of its own, so that no epochs collide later, and a master its slots.
func (c *Cluster) assign(ctx context.Context, node int) error {
	client := c.clients[node]
	if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", node+1).Err(); err != nil {
		return err
	}
	if node >= c.shape.masters {
		return nil
	}
	first, last := c.shape.slots(node)
	return client.ClusterAddSlotsRange(ctx, first, last).Err()
}

// meet introduces a node to the later ones, and returns when it has shaken hands with all.
func (c *Cluster) meet(ctx context.Context, node int) error {
	for _, p := range c.processes[node+1:] {
		host, port, err := net.SplitHostPort(p.addr) // the bus port is the one that Redis expects
		if err != nil {
			return err
		}
		if err := c.clients[node].ClusterMeet(ctx, host, port).Err(); err != nil {
			return err
		}
	}
	return await(ctx, func(ctx context.Context) error {
		all, err := members(ctx, c.clients[node])
		known := len(slices.DeleteFunc(all, func(m member) bool { return m.is("handshake") || m.is("noaddr") }))
		if err == nil && known != c.shape.nodes() {
			err = fmt.Errorf("%s knows %d of %d nodes", c.processes[node].addr, known, c.shape.nodes())
		}
		return err
	})
}

func (c *Cluster) replicate(ctx context.Context, node int) error {
	if node < c.shape.masters {
		return nil
	}
	master, err := c.clients[(node-c.shape.masters)%c.shape.masters].ClusterMyID(ctx).Result()
	if err != nil {
		return err
	}
	return c.clients[node].ClusterReplicate(ctx, master).Err()
}

// await calls check until it returns nil or ctx ends.
func await(ctx context.Context, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if !wait.For(ctx, pollEvery) {
			return fmt.Errorf("%w (last answer: %w)", context.Cause(ctx), err)
		}
	}
}

// askWithin bounds one question to a node, which may be paused.
const askWithin = 500 * time.Millisecond

// Whole returns nil when all nodes agree that all are there, that every slot is served by as many masters as there
// were at the start, and that every replica has its master's data. A second fault before that could be more than the
// cluster is built to survive.
func (c *Cluster) Whole(ctx context.Context) error {
	for i, client := range c.clients {
		if err := c.wholeTo(ctx, client); err != nil {
			return fmt.Errorf("%s: %w", c.processes[i].addr, err)
		}
	}
	return nil
}

func (c *Cluster) wholeTo(ctx context.Context, node *redis.Client) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	all, err := members(ctx, node)
	if err != nil {
		return err
	}
	masters, self := 0, member{}
	for _, m := range all {
		if m.is("myself") {
			self = m
		}
		if m.is("fail") || m.is("fail?") || m.is("handshake") || m.is("noaddr") {
			return fmt.Errorf("sees %s as %s", m.addr, strings.Join(m.flags, ","))
		}
		if m.serves() {
			masters++
		}
	}
	state, err1 := node.ClusterInfo(ctx).Result()
	replication, err2 := node.Info(ctx, "replication").Result()
	switch {
	case errors.Join(err1, err2) != nil:
		return errors.Join(err1, err2)
	case masters != c.shape.masters || len(all) != c.shape.nodes():
		return fmt.Errorf("sees %d masters among %d nodes", masters, len(all))
	case infoField(state, "cluster_state") != "ok",
		infoField(state, "cluster_slots_ok") != strconv.Itoa(totalSlots):
		return fmt.Errorf("the cluster is not ok: %q", state)
	case c.shape.replicas > 0:
		return replicated(&self, all, replication)
	}
	return nil
}

// replicated returns nil when a node's replicas, or its link to its master, are up.
func replicated(self *member, all []member, info string) error {
	if !self.serves() {
		if infoField(info, "master_link_status") != "up" {
			return errors.New("its link to its master is not up")
		}
		return nil
	}
	want := len(replicasOf(self.id, all))
	if online := strings.Count(info, "state=online"); want == 0 || online != want {
		return fmt.Errorf("%d of its %d replicas are online", online, want)
	}
	return nil
}

// replicasOf are the members that replicate a master.
func replicasOf(id string, all []member) (replicas []member) {
	for _, m := range all {
		if m.master == id {
			replicas = append(replicas, m)
		}
	}
	return replicas
}

// Masters returns the nodes that serve slots.
func (c *Cluster) Masters(ctx context.Context) (masters []*Process, err error) {
	all, err := members(ctx, c.clients[0])
	for _, m := range all {
		if m.serves() {
			masters = append(masters, c.at(m.addr))
		}
	}
	return masters, err
}

// Replicas returns the replicas of a master, or an error if it has none.
func (c *Cluster) Replicas(ctx context.Context, master *Process) (replicas []*Process, err error) {
	all, err := members(ctx, c.Node(master))
	if self := slices.IndexFunc(all, func(m member) bool { return m.addr == master.addr }); self >= 0 {
		for _, m := range replicasOf(all[self].id, all) {
			replicas = append(replicas, c.at(m.addr))
		}
	}
	if len(replicas) == 0 {
		err = errors.Join(fmt.Errorf("devstack: %s has no replica", master.name), err)
	}
	return replicas, err
}

// Promoted returns nil when a node serves slots as a master, by its own word.
func (c *Cluster) Promoted(ctx context.Context, p *Process) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	all, err := members(ctx, c.Node(p))
	if slices.ContainsFunc(all, func(m member) bool { return m.addr == p.addr && m.serves() }) {
		return nil
	}
	return errors.Join(fmt.Errorf("devstack: %s is a replica", p.name), err)
}

func (c *Cluster) at(addr string) *Process {
	return c.processes[slices.IndexFunc(c.processes, func(p *Process) bool { return p.addr == addr })]
}

// member is a node as another one, or itself, sees it.
type member struct {
	id, addr string
	flags    []string
	master   string // the ID of the node that it replicates; "-" of a master
	slots    bool   // it has some
}

func (m *member) is(flag string) bool { return slices.Contains(m.flags, flag) }

// serves reports whether the node is a master of slots.
func (m *member) serves() bool { return m.master == "-" && m.slots }

// members is the cluster as one node sees it.
func members(ctx context.Context, node *redis.Client) ([]member, error) {
	text, err := node.ClusterNodes(ctx).Result()
	return parseMembers(text), err
}

// parseMembers reads the answer of CLUSTER NODES, a line each:
//
//	<id> <address> <flags> <master id or -> <ping> <pong> <epoch> <link state> <slots...>
func parseMembers(text string) (all []member) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		addr, _, _ := strings.Cut(f[1], "@")
		all = append(all, member{id: f[0], addr: addr, flags: strings.Split(f[2], ","), master: f[3],
			slots: len(f) > 8})
	}
	return all
}
