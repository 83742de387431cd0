package redismatch_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/redismatch"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

func worldOn(t *testing.T, w fence.World) *redismatch.Store {
	t.Helper()
	client := redis.NewClusterClient(redisfence.Options(stacktest.Redis(t)...))
	t.Cleanup(func() { _ = client.Close() })
	s, err := redismatch.New(client, &redismatch.Config{World: fence.World{Name: w.Name}})
	require.NoError(t, err)
	require.NoError(t, s.Load(t.Context()))
	return s
}

func TestWorld(t *testing.T) {
	fencetest.RunWorld(t, false, func(t *testing.T, w fence.World) fence.WorldKeeper { return worldOn(t, w) })
}

// TestWorldsQueueTheirOwn: of two worlds on one server, each sees its own tickets and names.
func TestWorldsQueueTheirOwn(t *testing.T) {
	a, b := worldOn(t, fence.World{Name: "a"}), worldOn(t, fence.World{Name: "b"})
	shard := stacktest.UniqueName(t) + "/0"
	heard, ready := make(chan []string, 8), make(chan struct{})
	go func() {
		_ = b.Changes(t.Context(), shard, func() { close(ready) }, func(ids []string) { heard <- ids })
	}()
	<-ready
	ticket := func(id string) match.Ticket { return match.Ticket{ID: id, Players: []match.Player{{ID: "ann"}}} }
	_, err := a.Enqueue(t.Context(), shard, ticket("of-a"), match.Entry{MaxWait: time.Minute})
	require.NoError(t, err)
	list, err := b.List(t.Context(), shard, 10)
	require.NoError(t, err)
	require.Empty(t, list)
	shards, _, err := b.Names(t.Context())
	require.NoError(t, err)
	require.NotContains(t, shards, shard)
	shards, _, err = a.Names(t.Context())
	require.NoError(t, err)
	require.Contains(t, shards, shard)
	_, err = b.Enqueue(t.Context(), shard, ticket("of-b"), match.Entry{MaxWait: time.Minute})
	require.NoError(t, err, "the player waits in the other world, too")
	_, err = b.Cancel(t.Context(), shard, "of-b")
	require.NoError(t, err)
	require.Equal(t, []string{"of-b"}, <-heard)
	_, err = a.Cancel(t.Context(), shard, "of-a")
	require.NoError(t, err)
}
