package main

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/redisplan"
)

// TestPlansOnServers lists, replays and drops dead letters of tile/plan.
func TestPlansOnServers(t *testing.T) {
	addrs, name := stacktest.Redis(t), strings.ToLower(stacktest.UniqueName(t)[20:])
	client := redis.NewClusterClient(redisfence.Options(addrs...))
	defer func() { _ = client.Close() }()
	s, err := redisplan.New(client, &redisplan.Config{Name: name})
	require.NoError(t, err)
	id := fence.TileID(rand.Uint64()>>1 | 1)
	shard := plan.ShardOf(id, s.Shards())
	ask := func(ids ...string) {
		turn := plan.Turn{Tile: id, Epoch: 1}
		for _, letter := range ids {
			turn.Ask = append(turn.Ask, plan.Request{ID: letter, Tile: id, Entity: "ship " + letter[:1],
				Tier: plan.Background})
		}
		require.NoError(t, s.Turn(t.Context(), shard, []plan.Turn{turn})[0].Err)
	}
	fail := func() {
		got, err := s.Claim(t.Context(), shard, plan.Claim{Worker: "w", Lease: time.Hour, Any: 10, Attempts: 1})
		require.NoError(t, err)
		for _, r := range got.Requests {
			held, err := s.Finish(t.Context(), shard, "w", []plan.End{{Held: plan.Held{ID: r.ID, Attempt: 1},
				Kind: plan.Failed, Error: "model says no", Attempts: 1}})
			require.NoError(t, err)
			require.Equal(t, []bool{true}, held)
		}
	}
	tilectl := func(line string) (int, string) {
		var out, errs bytes.Buffer
		args := append([]string{"-redis", strings.Join(addrs, ","), "-plan-name", name}, strings.Fields(line)...)
		status := run(t.Context(), args, strings.NewReader("no\n"), &out, &errs)
		return status, out.String() + errs.String()
	}
	expect := func(status int, line string, texts ...string) {
		t.Helper()
		got, out := tilectl(line)
		require.Equal(t, status, got, out)
		for _, text := range texts {
			require.Contains(t, out, text)
		}
	}
	expect(statusOK, "plan letters")
	ask("a1", "b1", "c1")
	fail()
	expect(statusOK, "plan letters", "a1", "b1", "c1", "model says no", "dead")
	expect(statusOK, "plan letters b1 -json", `"id":"b1"`)
	expect(statusOK, "plan letters "+id.String(), "a1", "c1")
	expect(statusFailed, "plan letters x", "no dead letter")
	expect(statusOK, "plan replay a1 -dry-run", "would be replayed")
	expect(statusOK, "plan replay a1", "replayed")
	expect(statusOK, "plan -json", `"background":1`, `"dead":2`)
	answers := s.Turn(t.Context(), shard, []plan.Turn{{Tile: id, Epoch: 1,
		Seen: []plan.Receipt{{Entity: "ship b", ID: "b1"}}}})
	require.Len(t, answers[0].Answers, 1)
	ask("b2")
	expect(statusFailed, "plan replay", "kept", "replayed")
	expect(statusFailed, "plan drop", "Type yes")
	expect(statusOK, "plan drop -yes", "dropped")
	expect(statusOK, "plan drop -yes")
	expect(statusUsage, "plan what")
}
