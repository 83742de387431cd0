package redisfence_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// breakable is a cluster of the test's own, three masters with a replica each.
type breakable struct {
	*testing.T
	stack  *devstack.Stack
	client *redis.ClusterClient
	store  *redisfence.Store
	nodes  map[string]*redis.Client // by address
	hands
}

// ownTest is a test that breaks servers, and heals them again.
type ownTest struct {
	name string
	run  func(*breakable)
}

// TestOwnCluster breaks servers. Its tests wait more than they compute, so one half has a cluster beside that of the
// other; within a half they follow one another, and those that leave a cluster with a server less are the last.
func TestOwnCluster(t *testing.T) {
	t.Parallel()
	var halves sync.WaitGroup
	for _, tests := range [][]ownTest{{
		{"Library/missing", libraryMissing},
		{"Library/newer", libraryNewer},
		{"Library/altered", libraryAltered},
		{"Library/of-others", libraryOfOthers},
		{"Library/loaded-at-once", libraryLoadedAtOnce},
		{"Settings/eviction", settingsEviction},
		{"Settings/persistence", settingsPersistence},
		{"Memory/full", memoryFull},
		{"Replica/paused", replicaPaused},
		{"Replica/failed", replicaFailed},
		{"Load/replica-paused", loadReplicaPaused},
		{"Load/functions-flushed", loadFunctionsFlushed},
		{"Load/slots-migrated", loadSlotsMigrated},
		{"Load/master-killed", loadMasterKilled},
		{"Hole/paused-master", holePausedMaster},
	}, {
		{"Slot/migrated", slotMigrated},
		{"Slot/migrated-bare", slotMigratedBare},
		{"Master/handed-over", masterHandedOver},
		{"Hole/link-cut", holeLinkCut},
		{"Master/killed", masterKilled},
		{"Hole/orphan", holeOrphan},
	}} {
		stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Coordination}})
		halves.Go(func() {
			for _, test := range tests {
				t.Run(test.name, func(t *testing.T) { test.on(t, stack) })
			}
		})
	}
	halves.Wait()
}

// on runs the test on a cluster that is whole.
func (o *ownTest) on(t *testing.T, stack *devstack.Stack) {
	b := &breakable{T: t, stack: stack, client: newClient(t, stack.CoordAddrs), nodes: map[string]*redis.Client{}}
	b.hands = hands{t, b.client}
	b.await("every master has its replica", b.whole)
	b.store = b.open(nil)
	require.NoError(t, b.store.Load(t.Context()))
	o.run(b)
}

// open returns a store on the cluster, which keeps nothing over a restart.
func (b *breakable) open(cfg *redisfence.Config) *redisfence.Store {
	b.Helper()
	c := redisfence.Config{}
	if cfg != nil {
		c = *cfg
	}
	c.Persistence = redisfence.Volatile
	store, err := redisfence.New(b.client, &c)
	require.NoError(b, err)
	return store
}

// await waits until the cluster is as a test needs it.
func (b *breakable) await(what string, done func() bool) {
	b.Helper()
	waittest.Until(b, func() bool {
		b.client.ReloadState(b.Context())
		return done()
	}, 40*time.Second, 50*time.Millisecond, what)
}

// whole reports whether all six nodes agree that all is well and each master's replica is up to date.
func (b *breakable) whole() bool {
	for _, addr := range b.stack.CoordAddrs {
		node := b.node(addr)
		info, err := node.ClusterInfo(b.Context()).Result()
		if err != nil || !strings.Contains(info, "cluster_state:ok") ||
			!strings.Contains(info, "cluster_slots_ok:16384") ||
			!strings.Contains(info, "cluster_known_nodes:6") {
			return false
		}
		nodes, err := node.ClusterNodes(b.Context()).Result()
		if err != nil || strings.Contains(nodes, "fail") {
			return false
		}
		replication, err := node.Info(b.Context(), "replication").Result()
		if err != nil || !strings.Contains(replication, "state=online") &&
			!strings.Contains(replication, "master_link_status:up") {
			return false
		}
	}
	return true
}

// node is a client of one node.
func (b *breakable) node(addr string) *redis.Client {
	b.Helper()
	if b.nodes[addr] == nil {
		client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true,
			DialTimeout: time.Second, ReadTimeout: 20 * time.Second})
		b.Cleanup(func() { _ = client.Close() })
		b.nodes[addr] = client
	}
	return b.nodes[addr]
}

// serving is the processes that have a tile: its master and the master's replica.
func (b *breakable) serving(tile fence.TileID) (master, replica *devstack.Process) {
	b.Helper()
	waittest.Until(b, func() bool { // a node that is back is a replica for its master a moment later
		master, replica = b.servingNow(tile)
		return replica != nil
	}, 20*time.Second, 50*time.Millisecond, "the tile's master has no replica")
	return master, replica
}

func (b *breakable) servingNow(tile fence.TileID) (master, replica *devstack.Process) {
	b.Helper()
	key := fence.KeysOf(tile).Owner
	node, err := b.client.MasterForKey(b.Context(), key)
	require.NoError(b, err)
	nodes, err := node.ClusterNodes(b.Context()).Result()
	require.NoError(b, err)
	master = b.process(node.Options().Addr)
	id := ""
	for line := range strings.Lines(nodes) {
		if strings.Contains(line, "myself") {
			id = strings.Fields(line)[0]
		}
	}
	for line := range strings.Lines(nodes) {
		if f := strings.Fields(line); f[3] == id {
			addr, _, _ := strings.Cut(f[1], "@")
			return master, b.process(addr)
		}
	}
	return master, nil
}

func (b *breakable) process(addr string) *devstack.Process {
	b.Helper()
	for _, p := range b.stack.Processes() {
		if p.Addr() == addr {
			return p
		}
	}
	require.Fail(b, "no process has the address "+addr)
	return nil
}

// pause stops a process until the test ends or it is continued.
func (b *breakable) pause(p *devstack.Process) {
	b.Helper()
	require.NoError(b, p.Signal(devstack.Pause))
	b.Cleanup(func() { _ = p.Signal(devstack.GoOn) })
}

// eachMaster runs f on every master.
func (b *breakable) eachMaster(f func(ctx context.Context, node *redis.Client) error) {
	b.Helper()
	require.NoError(b, b.client.ForEachMaster(b.Context(), f))
}

// founded is a tile with one entry under epoch 1, on the master and its replica.
func (b *breakable) founded() (fence.TileID, fence.Position) {
	b.Helper()
	c := founding(newTile())
	c.Replicas = fence.AllReplicas
	var r fence.Receipt
	waittest.Until(b, func() (ok bool) {
		var err error
		r, err = b.store.Commit(b.Context(), c)
		return err == nil
	}, 20*time.Second, 50*time.Millisecond)
	require.Equal(b, 1, r.Replicas)
	return c.Tile, r.Position
}

func follow(tile fence.TileID, epoch fence.Epoch, prev fence.Position) fence.Commit {
	return fence.Commit{Tile: tile, Epoch: epoch, Contact: "a:1", Prev: prev, Tick: fence.Tick(prev.Seq + 1),
		Payload: []byte("next")}
}

// settle presents a commit until it is accepted, as an owner does whose answers are lost.
func (b *breakable) settle(c fence.Commit) fence.Receipt {
	b.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
		r, err := b.store.Commit(ctx, c)
		cancel()
		if err == nil {
			return r
		}
		require.NotErrorIs(b, err, fence.ErrInvalidArgument)
		var refused *fence.RefusedError
		require.NotErrorAs(b, err, &refused)
		require.True(b, time.Now().Before(deadline), "not accepted in half a minute: %v", err)
		time.Sleep(20 * time.Millisecond)
	}
}

// TestPausedMasterIsLeftSoon: with the client settings of Options, an owner that presents its batch again and
// again gets through to the promoted replica soon after the promotion, although the old master still accepts
// connections and answers nothing, also when it is asked for the topology.
func TestPausedMasterIsLeftSoon(t *testing.T) {
	t.Parallel()
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Coordination}})
	client := redis.NewClusterClient(redisfence.Options(stack.CoordAddrs...))
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	tile := newTile()
	founded, err := store.Rebase(t.Context(), fence.Rebase{Tile: tile, Epoch: 1, Contact: "a:1", Seq: 1,
		Blob: []byte("state"), Replicas: fence.AllReplicas})
	require.NoError(t, err)
	node, err := client.MasterForKey(t.Context(), fence.KeysOf(tile).Owner)
	require.NoError(t, err)
	for _, p := range stack.Processes() {
		if p.Addr() == node.Options().Addr {
			require.NoError(t, p.Signal(devstack.Pause))
			defer func() { assert.NoError(t, p.Signal(devstack.GoOn)) }()
		}
	}
	promoted := make(chan time.Time, 1)
	go func() { promoted <- whenPromoted(t.Context(), stack.CoordAddrs, node.Options().Addr) }()
	commit := follow(tile, 1, founded.Position)
	for end := time.Now().Add(time.Minute); ; {
		attempt, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err = store.Commit(attempt, commit)
		cancel()
		if err == nil {
			break
		}
		require.True(t, time.Now().Before(end), "no commit got through: %v", err)
		time.Sleep(50 * time.Millisecond)
	}
	late := time.Since(<-promoted)
	t.Logf("the first commit came %v after the promotion", late)
	assert.Less(t, late, 10*time.Second, "go-redis asks for the topology each minute by itself")
}

// whenPromoted returns when a node other than the paused one first has three masters that it does not think
// have failed.
func whenPromoted(ctx context.Context, addrs []string, paused string) time.Time {
	other := addrs[0]
	if other == paused {
		other = addrs[1]
	}
	node := redis.NewClient(&redis.Options{Addr: other, MaxRetries: -1})
	defer func() { _ = node.Close() }()
	for failed := false; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		nodes, _ := node.ClusterNodes(ctx).Result() // an error is no answer: ask again
		alive := 0
		for line := range strings.Lines(nodes) {
			f := strings.Fields(line)
			switch isMaster := len(f) > 2 && strings.Contains(f[2], "master"); {
			case isMaster && strings.Contains(f[2], "fail"):
				failed = true
			case isMaster:
				alive++
			}
		}
		if failed && alive == 3 {
			return time.Now()
		}
	}
	return time.Time{}
}
