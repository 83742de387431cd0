package redisshard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/shard"
	"github.com/tilefence/tilefence/stream/shard/memshard"
	"github.com/tilefence/tilefence/stream/shard/redisshard"
	"github.com/tilefence/tilefence/stream/shard/shardtest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	if os.Getenv(envMember) != "" {
		os.Exit(memberProcess())
	}
	os.Exit(m.Run())
}

func newClient(t testing.TB, addrs []string) *redis.ClusterClient {
	client := redis.NewClusterClient(redisfanout.Options(addrs...))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func open(t testing.TB, client redis.UniversalClient) *redisshard.Leases {
	l, err := redisshard.New(client)
	require.NoError(t, err)
	return l
}

// age makes a book older: what it says of times is put back.
var age = redis.NewScript(`
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  if fields[i] == 'settled' or fields[i] == 'heard' then
    redis.call('HSET', KEYS[1], fields[i], string.format('%.0f', math.max(0, fields[i + 1] - ARGV[1])))
  elseif string.sub(fields[i], 1, 2) == 'h:' then
    local expires, rest = string.match(fields[i + 1], '^(%d+)( .*)$')
    redis.call('HSET', KEYS[1], fields[i], string.format('%.0f', expires - ARGV[1]) .. rest)
  end
end`)

func backend(t testing.TB, client redis.UniversalClient) shardtest.Backend {
	return shardtest.Backend{
		Leases: open(t, client),
		Age: func(group string, by time.Duration) {
			err := age.Run(context.Background(), client, []string{redisshard.Key(group)}, by.Milliseconds()).Err()
			if !errors.Is(err, redis.Nil) {
				require.NoError(t, err)
			}
		},
		Lose: func(group string) { require.NoError(t, client.Del(context.Background(), redisshard.Key(group)).Err()) },
	}
}

func TestConformance(t *testing.T) {
	client := newClient(t, stacktest.Fanout(t))
	shardtest.Run(t, func(t *testing.T) shardtest.Backend { return backend(t, client) })
}

// TestOneServer: a client of a single server will do.
func TestOneServer(t *testing.T) {
	cluster := newClient(t, stacktest.Fanout(t))
	group := stacktest.UniqueName(t)
	node, err := cluster.MasterForKey(t.Context(), redisshard.Key(group))
	require.NoError(t, err)
	reply, err := open(t, node).Sync(t.Context(), shard.Request{Group: group, Holder: "a", Beat: 1, TTL: time.Minute})
	require.NoError(t, err)
	require.Len(t, reply.Held, 1)
	left, err := cluster.PTTL(t.Context(), redisshard.Key(group)).Result()
	require.NoError(t, err)
	require.Greater(t, left, 6*24*time.Hour, "an abandoned group is forgotten, but not soon")
}

func TestArgumentsOfNew(t *testing.T) {
	deaf := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = deaf.Close() }()
	for _, client := range []redis.UniversalClient{nil, (*redis.ClusterClient)(nil), (*redis.Client)(nil), deaf} {
		_, err := redisshard.New(client)
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
}

// TestStoreAway: an unreachable store is a *fence.StoreError, in time.
func TestStoreAway(t *testing.T) {
	l := open(t, newClient(t, []string{"127.0.0.1:1"}))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := l.Sync(ctx, shard.Request{Group: "g", Holder: "a", Beat: 1, TTL: time.Minute})
	var store *fence.StoreError
	require.ErrorAs(t, err, &store)
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
}

// TestBookDoesNotGrow: of holders that have left or died nothing stays.
func TestBookDoesNotGrow(t *testing.T) {
	client := newClient(t, stacktest.Fanout(t))
	b, group := backend(t, client), stacktest.UniqueName(t)
	r, err := shard.NewRanges(10, 20, 30)
	require.NoError(t, err)
	for n := range 30 {
		q := shard.Request{Group: group, Holder: fmt.Sprint("holder", n), Beat: 1, Ranges: r, TTL: time.Hour}
		_, err := b.Leases.Sync(t.Context(), q)
		require.NoError(t, err)
		if n%2 == 0 {
			q.Beat, q.Leaving, q.Release = 2, true, []int{0, 1, 2, 3}
			_, err := b.Leases.Sync(t.Context(), q)
			require.NoError(t, err)
		}
		b.Age(group, 29*time.Minute)
	}
	fields, err := client.HLen(t.Context(), redisshard.Key(group)).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, fields, int64(5+4+4), "the group's own, one for each shard, and who was heard within the hour")
}

// TestDamagedBook: what cannot be read is not written over.
func TestDamagedBook(t *testing.T) {
	client := newClient(t, stacktest.Fanout(t))
	for field, value := range map[string]string{"h:a": "x", "s:1": "1 2 3", "s:x": "1 0 a", "token": "many"} {
		group := stacktest.UniqueName(t)
		require.NoError(t, client.HSet(t.Context(), redisshard.Key(group), field, value).Err())
		_, err := open(t, client).Sync(t.Context(), shard.Request{Group: group, Holder: "a", Beat: 1, TTL: time.Minute})
		require.ErrorContains(t, err, "cannot be read", field)
		all, err := client.HGetAll(t.Context(), redisshard.Key(group)).Result()
		require.NoError(t, err)
		require.Equal(t, map[string]string{field: value}, all)
	}
}

// TestDifferential gives memshard and the script the same random requests, which they must answer alike.
func TestDifferential(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("TILEFENCE_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("repeat with: TILEFENCE_SEED=%d go test -run '%s'", seed, t.Name())
	rng := rand.New(rand.NewPCG(seed, 0))
	b := backend(t, newClient(t, stacktest.Fanout(t)))
	for range 10 {
		group := stacktest.UniqueName(t)
		ahead := time.Duration(0)
		mem := memshard.NewWithClock(func() time.Time { return time.Now().Add(ahead) })
		var last [6]shard.Reply
		for step := range 150 {
			if rng.IntN(12) == 0 {
				// The two clocks are apart by milliseconds: no sum of these comes that near to a lease or half of one.
				by := time.Duration(1+rng.IntN(80))*time.Minute + 7300*time.Millisecond
				ahead += by
				b.Age(group, by)
			}
			if rng.IntN(60) == 0 {
				mem.Forget()
				b.Lose(group)
			}
			r := randomRequest(rng, group, step, last[:])
			want, wantErr := mem.Sync(t.Context(), r)
			got, gotErr := b.Leases.Sync(t.Context(), r)
			require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(gotErr), "step %d: %+v", step, r)
			require.Equal(t, want, got, "step %d: %+v", step, r)
			if wantErr == nil {
				last[r.Holder[0]-'a'] = want
			}
		}
	}
}

func randomRequest(rng *rand.Rand, group string, step int, last []shard.Reply) shard.Request {
	holder := rng.IntN(len(last))
	r := shard.Request{Group: group, Holder: string(rune('a' + holder)), Beat: uint64(1 + step + rng.IntN(4)), TTL: time.Hour,
		Leaving: rng.IntN(8) == 0}
	cuts := []fence.TileID{10, 20, 30, 40, 50, 60}
	if rng.IntN(40) == 0 {
		cuts = cuts[:2]
	}
	r.Ranges, _ = shard.NewRanges(cuts...) // they ascend
	for s := range r.Ranges.Len() {
		g, has := last[holder].Find(s)
		switch pick := rng.IntN(10); {
		case pick < 6 && has:
			r.Held = append(r.Held, g.Lease)
		case pick < 8:
			r.Release = append(r.Release, s)
		case pick == 8:
			r.Held = append(r.Held, shard.Lease{Shard: s, Token: shard.Token(1 + rng.IntN(100))})
		}
	}
	return r
}

// BenchmarkSync is one heartbeat of a holder of a few shards among others.
func BenchmarkSync(b *testing.B) {
	client := newClient(b, stacktest.Fanout(b))
	for _, size := range []struct{ shards, holders int }{{32, 4}, {64, 16}, {256, 64}} {
		b.Run(fmt.Sprintf("%d shards, %d holders", size.shards, size.holders), func(b *testing.B) {
			l := open(b, client)
			cuts := make([]fence.TileID, size.shards-1)
			for i := range cuts {
				cuts[i] = fence.TileID(i + 1)
			}
			ranges, err := shard.NewRanges(cuts...)
			require.NoError(b, err)
			group := stacktest.UniqueName(b)
			beat := func(holder, n int) {
				_, err := l.Sync(b.Context(), shard.Request{Group: group, Holder: fmt.Sprint("holder", holder), Beat: uint64(n), Ranges: ranges, TTL: time.Minute})
				require.NoError(b, err)
			}
			n := 1
			for h := range size.holders {
				beat(h, n)
			}
			for b.Loop() {
				n++
				beat(0, n)
			}
		})
	}
}
