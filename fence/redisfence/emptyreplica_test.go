package redisfence_test

import (
	"fmt"
	"net"
	"strings"
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

// TestAnEmptyReplicaConfirmsNothing: a master lists its first replica as online before the replica has loaded the data.
// WAIT counts it then for a write from before, and INFO gives an offset of zero, which such a write has as well.
// Neither a commit nor Confirm may take it for a copy.
func TestAnEmptyReplicaConfirmsNothing(t *testing.T) {
	t.Parallel()
	alone := devstack.Config{Parts: []devstack.Part{devstack.Views}}
	first, second := stacktest.Start(t, alone), stacktest.Start(t, alone)
	master, replica := plainClient(t, first.ViewsAddr), plainClient(t, second.ViewsAddr)

	// Loading takes 20 s: a millisecond for each key.
	require.NoError(t, replica.ConfigSet(t.Context(), "key-load-delay", "1000").Err())
	require.NoError(t, master.ConfigSet(t.Context(), "repl-ping-replica-period", "3600").Err())
	_, err := master.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for i := range 20_000 {
			pipe.Set(t.Context(), fmt.Sprint("filler:", i), "", 0)
		}
		return nil
	})
	require.NoError(t, err)

	answers := make(chan error, 2)
	var store *redisfence.Store
	c := founding(newTile())
	for _, replicas := range []int{1, fence.AllReplicas} {
		store, err = redisfence.New(master, &redisfence.Config{Persistence: redisfence.Volatile,
			ConfirmTimeout: 15 * time.Second})
		require.NoError(t, err)
		require.NoError(t, store.Load(t.Context()))
		c = founding(newTile())
		c.Replicas = replicas
		go func(store *redisfence.Store, c fence.Commit) {
			_, err := store.Commit(t.Context(), c)
			answers <- err
		}(store, c)
	}
	waittest.Until(t, func() bool {
		info, err := master.Info(t.Context(), "clients").Result()
		return err == nil && strings.Contains(info, "blocked_clients:2")
	}, 10*time.Second, 20*time.Millisecond, "both wait for a replica")

	host, port, err := net.SplitHostPort(first.ViewsAddr)
	require.NoError(t, err)
	follow := func() { require.NoError(t, replica.Do(t.Context(), "replicaof", host, port).Err()) }
	follow()
	waittest.Until(t, func() bool {
		info, err := master.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "state=online,offset=0,")
	}, 20*time.Second, 5*time.Millisecond, "the empty replica is listed as online")
	assert.ErrorIs(t, store.Confirm(t.Context(), c.Tile, c.Next()), fence.ErrUnconfirmed)
	for range cap(answers) {
		assert.ErrorIs(t, <-answers, fence.ErrUnconfirmed)
	}

	process, found := second.Process("views")
	require.True(t, found)
	require.NoError(t, process.Restart(t.Context()))
	follow()
	waittest.Until(t, func() bool { return store.Confirm(t.Context(), c.Tile, c.Next()) == nil }, 20*time.Second,
		20*time.Millisecond, "the replica has loaded everything")
}

func plainClient(t *testing.T, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: 30 * time.Second, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}
