package redismatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/redismatch"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

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
