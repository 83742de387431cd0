package redisfence_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// TestPausedMasterIsLeftSoon: with the client settings of Options, an owner that presents its batch again and
// again gets through to the promoted replica soon after the promotion, although the old master still accepts
// connections and answers nothing, also when it is asked for the topology.
func TestPausedMasterIsLeftSoon(t *testing.T) {
	t.Parallel()
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Coordination}})
	client := redis.NewClusterClient(redisfence.Options(stack.CoordAddrs...))
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisfence.New(client, &redisfence.Config{AllowNoPersistence: true})
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
			require.NoError(t, p.Signal(syscall.SIGSTOP))
			defer func() { assert.NoError(t, p.Signal(syscall.SIGCONT)) }()
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
