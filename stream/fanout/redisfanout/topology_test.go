package redisfanout_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
)

// ownCluster is a fan-out cluster that a test may break. Its nodes go on serving their slots when others
// are down, as those of a fan-out should.
type ownCluster struct {
	t     testing.TB
	stack *devstack.Stack
	nodes []*redis.Client
	ids   []string
}

func startCluster(t testing.TB) *ownCluster {
	c := &ownCluster{t: t, stack: stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Fanout}})}
	for _, addr := range c.stack.FanoutAddrs {
		node := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = node.Close() })
		require.NoError(t, node.ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
		id, err := node.Do(t.Context(), "cluster", "myid").Text()
		require.NoError(t, err)
		c.nodes, c.ids = append(c.nodes, node), append(c.ids, id)
	}
	return c
}

func (c *ownCluster) process(i int) *devstack.Process {
	p, ok := c.stack.Process("fanout-" + strconv.Itoa(i+1))
	require.True(c.t, ok)
	return p
}

// slotsOf returns the first and last slot of node i.
func (c *ownCluster) slotsOf(i int) (first, last int) {
	shards, err := c.nodes[i].ClusterShards(c.t.Context()).Result()
	require.NoError(c.t, err)
	for _, s := range shards {
		if s.Nodes[0].ID == c.ids[i] {
			return int(s.Slots[0].Start), int(s.Slots[0].End)
		}
	}
	c.t.Fatal("a node without slots")
	return 0, 0
}

// tileOn returns a tile whose channel is in one of the slots.
func (c *ownCluster) tileOn(first, last int) fence.TileID {
	for {
		tile := anyTile()
		slot, err := c.nodes[0].ClusterKeySlot(c.t.Context(), fence.World{}.Channel(tile)).Result()
		require.NoError(c.t, err)
		if int(slot) >= first && int(slot) <= last {
			return tile
		}
	}
}

// inherit gives the slots of a dead node to a survivor, as an operator does.
func (c *ownCluster) inherit(first, last int) {
	for _, node := range []int{0, 1} {
		require.NoError(c.t, c.nodes[node].Do(c.t.Context(), "cluster", "delslotsrange", first, last).Err())
	}
	require.NoError(c.t, c.nodes[0].Do(c.t.Context(), "cluster", "addslotsrange", first, last).Err())
	require.NoError(c.t, c.nodes[0].Do(c.t.Context(), "cluster", "bumpepoch").Err())
}

// TestSlotMoves: channels follow their slot to another node, on both sides.
func TestSlotMoves(t *testing.T) {
	c := startCluster(t)
	f := open(t, newClient(t, c.stack.FanoutAddrs), nil)
	pub := open(t, newClient(t, c.stack.FanoutAddrs), nil)
	first, last := c.slotsOf(0)
	var moving []*probe
	for range 5 {
		moving = append(moving, newProbeOn(t, c.tileOn(first, first+99), f, pub))
	}
	staying := newProbeOn(t, c.tileOn(first+1000, last), f, pub)
	for _, p := range moving {
		p.awaitLive()
	}
	for slot := first; slot < first+100; slot++ {
		for _, node := range []int{1, 0, 2} { // the new owner first
			require.NoError(t, c.nodes[node].Do(t.Context(), "cluster", "setslot", slot, "node", c.ids[1]).Err())
		}
	}
	for _, p := range append(moving, staying) {
		p.awaitLive()
	}
	require.Zero(t, f.Stats().Disconnects, "no connection had to be given up for it")
	late := newProbeOn(t, c.tileOn(first, first+99), f, pub)
	late.awaitLive()
}

// TestNodeDies: the other nodes' channels do not notice; the dead node's come back when its slots have a
// new home.
func TestNodeDies(t *testing.T) {
	c := startCluster(t)
	f := open(t, newClient(t, c.stack.FanoutAddrs), nil)
	pub := open(t, newClient(t, c.stack.FanoutAddrs), nil)
	first, last := c.slotsOf(2)
	aliveFirst, aliveLast := c.slotsOf(0)
	doomed := newProbeOn(t, c.tileOn(first, last), f, pub)
	doomed2 := newProbeOn(t, c.tileOn(first, last), f, pub)
	alive := newProbeOn(t, c.tileOn(aliveFirst, aliveLast), f, pub)

	require.NoError(t, c.process(2).Signal(os.Kill))
	<-c.process(2).Exited()
	sent, err := pub.Publish(t.Context(), []fanout.Message{
		{Tile: alive.tile, Data: []byte("first")},
		{Tile: doomed.tile, Data: []byte("lost")},
		{Tile: alive.tile, Data: []byte("second")},
	})
	require.Equal(t, 1, sent)
	var failed *fanout.PublishError
	require.ErrorAs(t, err, &failed)
	require.True(t, failed.Handed[0])
	require.False(t, failed.Handed[1])
	require.True(t, failed.Handed[2], "a dead node costs the others' messages nothing")
	require.Equal(t, "first", <-alive.got)
	require.Equal(t, "second", <-alive.got)

	c.inherit(first, last)
	for _, p := range []*probe{doomed, doomed2, alive} {
		p.awaitLive()
	}
	require.Equal(t, 3, f.Stats().InForce)
}

// TestNodeHangs: a node that accepts and never answers costs a Publish its timeout and no more, and its
// subscriptions are taken off it.
func TestNodeHangs(t *testing.T) {
	c := startCluster(t)
	logger, lost := lostConnections()
	cfg := redisfanout.Config{Logger: logger}.With(
		redisfanout.Tuning{Timeout: 200 * time.Millisecond, PingInterval: 100 * time.Millisecond})
	f := open(t, newClient(t, c.stack.FanoutAddrs), cfg)
	pub := open(t, newClient(t, c.stack.FanoutAddrs), cfg)
	first, last := c.slotsOf(1)
	hung := newProbeOn(t, c.tileOn(first, last), f, pub)
	first, last = c.slotsOf(0)
	alive := newProbeOn(t, c.tileOn(first, last), f, pub)
	hung.awaitLive()
	alive.awaitLive()

	require.NoError(t, c.process(1).Signal(devstack.Pause))
	began := time.Now()
	sent, err := pub.Publish(t.Context(), []fanout.Message{{Tile: hung.tile, Data: []byte("?")},
		{Tile: alive.tile, Data: []byte("through")}})
	require.Less(t, time.Since(began), 2*time.Second)
	require.Zero(t, sent)
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
	require.Equal(t, "through", <-alive.got)

	select {
	case line := <-lost:
		require.Contains(t, line, "addr="+c.stack.FanoutAddrs[1]+" channels=1 ")
	case <-time.After(patience):
		t.Fatal("the silent connection was not given up")
	}
	require.NoError(t, c.process(1).Signal(devstack.GoOn))
	hung.awaitLive()
}

// TestReaderCannotGrow: a subscriber that stalls costs neither Redis nor this process memory.
func TestReaderCannotGrow(t *testing.T) {
	client := newClient(t, stacktest.Fanout(t))
	const limit = 64 << 10
	f := open(t, client, redisfanout.Config{}.With(redisfanout.Tuning{BufferBytes: limit}))
	tile := anyTile()
	release := make(chan struct{})
	kept := 0
	stop, err := f.Subscribe(t.Context(), tile, func(data []byte) {
		<-release
		kept += len(data)
	})
	require.NoError(t, err)
	messages := make([]fanout.Message, 100)
	for i := range messages {
		messages[i] = fanout.Message{Tile: tile, Data: make([]byte, 10<<10)}
	}
	const rounds = 30
	for range rounds {
		sent, err := f.Publish(t.Context(), messages)
		require.NoError(t, err)
		require.Equal(t, len(messages), sent)
	}
	total := uint64(rounds * len(messages))
	waittest.Until(t, func() bool { return f.Stats().Received == total }, patience, time.Millisecond)
	node, err := client.MasterForKey(t.Context(), fence.World{}.Channel(tile))
	require.NoError(t, err)
	require.Less(t, outputBuffers(t, node), 1<<20, "Redis holds nothing for us")
	close(release)
	waittest.Until(t, func() bool { s := f.Stats(); return s.Dropped > total/2 }, patience, time.Millisecond)
	stop()
	require.LessOrEqual(t, kept, limit+2*10<<10)
}

// outputBuffers is how many bytes wait in the node's pub/sub clients' output buffers.
func outputBuffers(t *testing.T, node *redis.Client) int {
	list, err := node.Do(context.WithoutCancel(t.Context()), "client", "list", "type", "pubsub").Text()
	require.NoError(t, err)
	sum := 0
	for line := range strings.Lines(list) {
		for field := range strings.FieldsSeq(line) {
			if v, ok := strings.CutPrefix(field, "omem="); ok {
				n, err := strconv.Atoi(v)
				require.NoError(t, err)
				sum += n
			}
		}
	}
	return sum
}
