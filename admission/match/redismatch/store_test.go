package redismatch_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/redismatch"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/matchtest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

func newClient(t testing.TB, addrs []string) *redis.ClusterClient {
	client := redis.NewClusterClient(redisfence.Options(addrs...))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newStore(t testing.TB, client *redis.ClusterClient, cfg *redismatch.Config) *redismatch.Store {
	t.Helper()
	store, err := redismatch.New(client, cfg)
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	return store
}

func TestConformance(t *testing.T) {
	client := newClient(t, stacktest.Redis(t))
	matchtest.Run(t, func(t *testing.T) match.Backend { return newStore(t, client, nil) })
}

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

// TestServers: what a server may lack. The cluster is the test's own.
func TestServers(t *testing.T) {
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Coordination}})
	client := newClient(t, stack.CoordAddrs)
	awaitWhole(t, client, stack)
	store := newStore(t, client, nil)
	each := func(command ...any) {
		t.Helper()
		require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			return node.Do(ctx, command...).Err()
		}))
	}
	ticket := match.Ticket{ID: "a", Players: []match.Player{{ID: "a"}}}

	each("function", "flush")
	_, err := store.Enqueue(t.Context(), "q/0", ticket, match.Entry{MaxWait: time.Minute})
	require.NoError(t, err, "a library that is missing is loaded")

	each("config", "set", "maxmemory-policy", "allkeys-lru")
	each("config", "set", "maxmemory", "1gb")
	var setting *fence.SettingError
	require.ErrorAs(t, store.Load(t.Context()), &setting)
	require.Equal(t, "maxmemory-policy", setting.Setting)
	each("config", "set", "maxmemory", "0")
	require.NoError(t, store.Load(t.Context()))

	strict, err := redismatch.New(client, &redismatch.Config{Replicas: 2})
	require.NoError(t, err)
	strict.Hurry(50*time.Millisecond, 100*time.Millisecond)
	ticket.ID, ticket.Players = "b", []match.Player{{ID: "b"}}
	_, err = strict.Enqueue(t.Context(), "q/0", ticket, match.Entry{MaxWait: time.Minute})
	require.ErrorIs(t, err, fence.ErrUnknownOutcome, "one replica is not two")
	require.ErrorContains(t, err, "redismatch.Config.NoReplicas")
	st, err := store.Enqueue(t.Context(), "q/0", ticket, match.Entry{MaxWait: time.Minute})
	require.NoError(t, err, "the same call may be repeated")
	require.Equal(t, match.Waiting, st.State)

	_, err = redismatch.New(client, &redismatch.Config{Replicas: -1})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = redismatch.New(nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}

// TestADamagedRecordHoldsUpNoOther: tickets and matches that another hand has damaged or removed keep no worker and no
// supervisor from the rest. They end, or their tickets wait again.
func TestADamagedRecordHoldsUpNoOther(t *testing.T) {
	client := newClient(t, stacktest.Redis(t))
	store, err := redismatch.New(client, &redismatch.Config{NoReplicas: true})
	require.NoError(t, err)
	ctx, shard := t.Context(), stacktest.UniqueName(t)+"/0"
	key := func(id string) string { return redismatch.Base(shard) + id }
	for i := range 8 {
		id := fmt.Sprint("t", i)
		ticket := match.Ticket{ID: id, Players: []match.Player{{ID: "p" + id}}}
		_, err := store.Enqueue(ctx, shard, ticket, match.Entry{})
		require.NoError(t, err)
	}
	require.NoError(t, client.HSet(ctx, key(":t:t0"), "d", "{").Err())
	require.NoError(t, client.HSet(ctx, key(":t:t1"), "d", `{"id":"t2"}`).Err(), "another ticket's")
	require.NoError(t, client.Del(ctx, key(":t:t3")).Err())
	claim := match.Claim{Worker: "w", Lease: 20 * time.Millisecond, Limit: 100}
	h, err := store.Claim(ctx, shard, claim)
	require.NoError(t, err)
	require.Len(t, h.Tickets, 5)
	again, err := store.Claim(ctx, shard, match.Claim{Worker: "w", Epoch: h.Epoch, Lease: claim.Lease, Limit: 100})
	require.NoError(t, err)
	require.Len(t, again.Tickets, 5, "they take no room")
	var matches []match.Match
	for i := range 2 {
		matches = append(matches, match.Match{ID: fmt.Sprint("m", i), Shard: shard,
			Tickets: []match.Ticket{h.Tickets[2*i].Ticket, h.Tickets[2*i+1].Ticket}})
	}
	results, err := store.Record(ctx, shard, h.Epoch, matches)
	require.NoError(t, err)
	require.Equal(t, []error{nil, nil}, results)
	require.NoError(t, client.HSet(ctx, key(":m:m0"), "d", "no match").Err())
	time.Sleep(2 * claim.Lease)
	r, err := store.Reclaim(ctx, shard, 100)
	require.NoError(t, err)
	require.Equal(t, matches[1:], r.Pending)
	st, err := store.Status(ctx, shard, matches[0].Tickets[0].ID)
	require.NoError(t, err)
	require.Equal(t, match.Waiting, st.State)
}
