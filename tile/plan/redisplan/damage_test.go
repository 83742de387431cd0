package redisplan_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/plantest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/redisplan"
)

// TestDamage: a record or an answer that cannot be read is dropped. What is beside it stays.
func TestDamage(t *testing.T) {
	t.Parallel()
	addrs := stacktest.Redis(t)
	client, s := newClient(t, addrs), open(t, addrs)
	for what, bytes := range map[string]string{"no list": "\xc1", "no bytes": "", "a number": "\x01",
		"a short list": "\x91\x01"} {
		t.Run(what, func(t *testing.T) {
			b := plantest.NewBench(t, s)
			requests := s.Key(b.Shard)
			damaged, whole := b.Request("damaged"), b.Request("whole")
			b.Ask(damaged, whole)
			require.NoError(t, client.HSet(t.Context(), requests, damaged.ID, bytes).Err())
			got := b.Claim(5)
			require.Len(t, got, 1)
			require.Equal(t, whole.ID, got[0].ID)
			require.NoError(t, client.HSet(t.Context(), requests, whole.ID, bytes).Err())
			require.False(t, b.Finish(got[0], plan.End{Body: []byte("plan")}), "its record cannot be read")
			listed := b.Turn(plan.Turn{List: true})
			require.Empty(t, listed.Listed)
			require.Zero(t, listed.InStore)
			require.False(t, client.HExists(t.Context(), requests, damaged.ID).Val())

			b.Plan("damaged", "another plan")
			b.Plan("whole", "its plan")
			answers := strings.TrimSuffix(requests, "requests") + "answers:" + b.Tile.String()
			require.NoError(t, client.HSet(t.Context(), answers, "damaged", bytes).Err())
			r := b.Turn(plan.Turn{List: true})
			require.Len(t, r.Answers, 1)
			require.Equal(t, "whole", r.Answers[0].Entity)
			require.Equal(t, 1, b.Turn(plan.Turn{}).InStore)
			b.Ask(b.Request("damaged"))
			require.Len(t, b.Claim(5), 1)
		})
	}
}

// TestWakesAreHeardAgain: a worker that loses its subscriptions subscribes again, and looks for what it has missed.
func TestWakesAreHeardAgain(t *testing.T) {
	t.Parallel()
	options := redisfence.Options(stacktest.Redis(t)...)
	options.ClientName = storeName(t)
	client := redis.NewClusterClient(options)
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisplan.New(client, &redisplan.Config{Name: options.ClientName})
	require.NoError(t, err)
	require.NoError(t, s.Load(t.Context()))
	b := plantest.NewBench(t, s)
	var players, background atomic.Int64
	stop := start(func(ctx context.Context) error {
		return s.Wake(ctx, func(shard int, tier plan.Tier) {
			if shard == b.Shard {
				map[plan.Tier]*atomic.Int64{plan.Player: &players, plan.Background: &background}[tier].Add(1)
			}
		})
	})
	defer stop()
	heard := func(p, b int64) {
		t.Helper()
		waittest.Until(t, func() bool { return players.Load() >= p && background.Load() >= b }, 20*time.Second,
			10*time.Millisecond)
	}
	heard(1, 1)
	for range 3 {
		players.Store(0)
		background.Store(0)
		require.NotZero(t, cutSubscriptions(t, client, options.ClientName))
		heard(1, 1)
		b.Ask(b.PlayerRequest("ship"))
		heard(2, 1)
		b.Turn(plan.Turn{Seen: []plan.Receipt{{Entity: "ship", ID: finished(b).ID}}})
	}
}

// finished ends the one request that waits, and returns it.
func finished(b *plantest.Bench) plan.Request {
	b.Helper()
	got := b.Claim(1)
	require.Len(b, got, 1)
	require.True(b, b.Finish(got[0], plan.End{Body: []byte("plan")}))
	return got[0]
}

// cutSubscriptions closes the connections of a client that listen, and returns how many there were.
func cutSubscriptions(t *testing.T, client *redis.ClusterClient, name string) int {
	t.Helper()
	var cut atomic.Int64
	require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		list, err := node.Do(ctx, "client", "list", "type", "pubsub").Text()
		for line := range strings.Lines(list) {
			fields := map[string]string{}
			for field := range strings.FieldsSeq(line) {
				k, v, _ := strings.Cut(field, "=")
				fields[k] = v
			}
			if fields["name"] == name && node.ClientKillByFilter(ctx, "ID", fields["id"]).Err() == nil {
				cut.Add(1)
			}
		}
		return err
	}))
	return int(cut.Load())
}
