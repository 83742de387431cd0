package redismatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/redismatch"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

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
