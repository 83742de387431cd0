package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

func TestSlotsAreRead(t *testing.T) {
	slots, err := parseSlots([]string{"5", "7-9", "16383"})
	require.NoError(t, err)
	require.Equal(t, []int{5, 7, 8, 9, 16383}, slots)
	for _, bad := range []string{"", "x", "-1", "16384", "9-7", "3-", "3-16384"} {
		_, err := parseSlots([]string{bad})
		require.Error(t, err, bad)
	}
}

func TestWhoFollowsIsRead(t *testing.T) {
	info := "role:master\r\nconnected_slaves:4\r\n" +
		"slave0:ip=127.0.0.1,port=1,state=online,offset=90,lag=0\r\n" +
		"slave1:ip=127.0.0.1,port=2,state=online,offset=100,lag=2\r\n" +
		"slave2:ip=127.0.0.1,port=3,state=wait_bgsave,offset=100,lag=0\r\n" +
		"slave3:ip=127.0.0.1,port=4,state=online,offset=100,lag=1\r\n" +
		"slave4:ip=127.0.0.1,port=5,state=online,offset=0,lag=0\r\n" + // it is empty yet
		"master_repl_offset:100\r\n"
	for offset, want := range map[int64]int{0: 2, 90: 2, 91: 1, 100: 1, 101: 0} {
		end, n := followers(info, offset)
		require.EqualValues(t, 100, end)
		require.Equal(t, want, n, offset)
	}
}

// TestSlotsMove: a slot is given to a master only when its replicas have the keys. While one of them does not follow,
// what was confirmed stays confirmed, or, where it was moved half way, is not given; the same command goes on later.
func TestSlotsMove(t *testing.T) {
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Coordination}})
	client := redis.NewClusterClient(redisfence.Options(stack.CoordAddrs...))
	defer func() { _ = client.Close() }()
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))

	tile := fence.TileID(rand.Uint64()>>1 | 1)
	commit := fence.Commit{Tile: tile, Epoch: 1, Contact: "a:1", Tick: 1, Payload: []byte("kept"), Install: true,
		Replicas: fence.AllReplicas}
	waittest.Until(t, func() bool {
		_, err := store.Commit(t.Context(), commit)
		return err == nil
	}, 20*time.Second, 50*time.Millisecond)
	key := fence.KeysOf(tile).Owner
	slot, err := client.ClusterKeySlot(t.Context(), key).Result()
	require.NoError(t, err)
	from, to, replica := places(t, client, stack, key)

	tilectl := func(line string) (int, string, string) {
		var out, errs bytes.Buffer
		status := run(t.Context(), append([]string{"-redis", strings.Join(stack.CoordAddrs, ","), "-timeout", "3s"},
			strings.Fields(line)...), strings.NewReader(""), &out, &errs)
		return status, out.String(), errs.String()
	}
	line := fmt.Sprintf("slots move %s %d", to, slot)
	has := func(addr string) bool {
		node := redis.NewClient(&redis.Options{Addr: addr})
		defer func() { _ = node.Close() }()
		keys, err := node.ClusterGetKeysInSlot(t.Context(), int(slot), 10).Result()
		require.NoError(t, err)
		return len(keys) > 0
	}
	owner := func() string {
		client.ReloadState(t.Context())
		node, err := client.MasterForKey(t.Context(), key)
		require.NoError(t, err)
		return node.Options().Addr
	}

	require.NoError(t, replica.Signal(devstack.Pause))
	defer func() { _ = replica.Signal(devstack.GoOn) }()
	status, out, errs := tilectl(line) // perhaps before the target has noticed: then the keys are moved, not given
	require.Equal(t, statusFailed, status, out)
	require.Contains(t, errs, errBehind.Error())
	require.Equal(t, from, owner())
	status, _, errs = tilectl(line)
	require.Equal(t, statusFailed, status)
	require.Contains(t, errs, errBehind.Error())
	require.NoError(t, replica.Signal(devstack.GoOn))

	waittest.Until(t, func() bool {
		status, out, errs = tilectl(line)
		return status == statusOK
	}, 40*time.Second, 100*time.Millisecond, "%s", errs)
	waittest.Until(t, func() bool { return owner() == to }, 20*time.Second, 50*time.Millisecond)
	require.True(t, has(to))
	require.False(t, has(from))
	require.True(t, has(replica.Addr()), "the target's replica has the keys")
	status, out, _ = tilectl(line)
	require.Equal(t, statusOK, status)
	require.Empty(t, out, "it is there already")
	commit.Prev, commit.Tick, commit.Install = commit.Next(), 2, false
	waittest.Until(t, func() bool {
		_, err := store.Commit(t.Context(), commit)
		return err == nil
	}, 20*time.Second, 50*time.Millisecond)

	status, _, errs = tilectl("slots move 127.0.0.1:1 5")
	require.Equal(t, statusFailed, status)
	require.Contains(t, errs, "no master at 127.0.0.1:1")
	status, _, _ = tilectl("slots move " + to)
	require.Equal(t, statusUsage, status)
}

// places is where a key is, another master, and the process of that one's replica.
func places(t *testing.T, client *redis.ClusterClient, stack *devstack.Stack,
	key string) (from, to string, replica *devstack.Process) {
	node, err := client.MasterForKey(t.Context(), key)
	require.NoError(t, err)
	from = node.Options().Addr
	var shards []redis.ClusterShard
	waittest.Until(t, func() bool { // a node learns of the others' replicas by and by
		shards, err = node.ClusterShards(t.Context()).Result()
		return err == nil && !slices.ContainsFunc(shards, func(s redis.ClusterShard) bool { return len(s.Nodes) < 2 })
	}, 20*time.Second, 50*time.Millisecond)
	for _, s := range shards {
		places := map[string]string{}
		for _, n := range s.Nodes {
			places[n.Role] = fmt.Sprintf("%s:%d", n.IP, n.Port)
		}
		to = places["master"]
		for _, p := range stack.Processes() {
			if to != from && p.Addr() == places["replica"] {
				return from, to, p
			}
		}
	}
	require.Fail(t, "no other master has a replica")
	return
}
