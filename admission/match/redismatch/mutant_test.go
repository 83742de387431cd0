package redismatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match/redismatch"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/matchtest"
)

// TestMutants breaks one promise of the functions at a time. The suite's census, which knows nothing of the functions,
// must notice.
func TestMutants(t *testing.T) {
	client := newClient(t, stacktest.Redis(t))
	tickets := func(ctx context.Context, s *redismatch.Store, name string, seed uint64) error {
		return matchtest.Census(ctx, s, name+"/0", seed)
	}
	seats := func(ctx context.Context, s *redismatch.Store, name string, seed uint64) error {
		return matchtest.SeatCensus(ctx, s, name, seed)
	}
	for _, m := range []struct {
		name   string
		census func(context.Context, *redismatch.Store, string, uint64) error
		edits  []string
	}{
		{"a claim leaves the tickets in the queue", tickets, []string{"redis.call('ZREM', base .. key, unpack(band))",
			"redis.call('ZSCORE', base .. key, band[1])"}},
		{"a match is recorded without a claim", tickets, []string{"not has[ids[k]] and", "false and"}},
		{"no epoch on completion", tickets, []string{"if not due then return {'stale'} end", "due = due or '0'",
			"set[ids[i]] = e and tonumber(e) == tonumber(epoch)", "set[ids[i]] = e"}},
		{"reclaim of a live worker", tickets, []string{"if not redis.call('ZSCORE', base .. ':leases', epoch) then",
			"if true then"}},
		{"a heartbeat renews nothing", tickets, []string{"text(now() + lease), args[1])", "text(now()), args[1])"}},
		{"nothing is reclaimed", tickets, []string{"while #ids < limit do", "while false do"}},
		{"pending matches are forgotten", tickets, []string{"redis.call('ZADD', base .. ':pending', unpack(made))",
			""}},
		{"a release returns what is not held", tickets, []string{"if e and tonumber(e) == tonumber(epoch) then",
			"if true then"}},
		{"a dissolved match is published", tickets, []string{"if m[1] == '1' then\n      finish_match(",
			"if m[1] then\n      finish_match(", "(m[1] == '1' or m[1] == '2') and '1'", "m[1] and '1'"}},
		{"a seat without a limit", seats, []string{"free and tonumber(free) >= need and tile or nil", "tile",
			"':free', need, '+inf'", "':free', '-inf', '+inf'"}},
		{"a seat without a count", seats, []string{"redis.call('HINCRBY', base .. ':s:' .. tile, 'used', need)", "0"}},
		{"an answer for each ask", seats, []string{"local has = answer(base, match)\n    if has then",
			"local has = answer(base, match)\n    if false then"}},
		{"a seat for two", seats, []string{"redis.call('SETBIT', base .. ':b:' .. tile, seat, 1)", ""}},
		{"a seat is not given back", seats, []string{"'used', -n)", "'used', 0)"}},
	} {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			name := "mutant_" + stacktest.UniqueName(t)
			store, remove, err := redismatch.NewMutant(t.Context(), client, name, m.edits...)
			require.NoError(t, err)
			defer func() { require.NoError(t, remove(context.Background())) }()
			for i := range 6 {
				seed := rand.Uint64()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				err := m.census(ctx, store, fmt.Sprintf("%s-%d", name[len(name)-15:], i), seed)
				cancel()
				if err != nil {
					t.Logf("caught, seed %d: %v", seed, err)
					return
				}
			}
			t.Error("not noticed")
		})
	}
}
