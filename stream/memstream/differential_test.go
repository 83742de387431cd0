package memstream_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/redisstream"
)

// lifetime of owner hashes: they are dropped, and made to expire, by calls.
const lifetime = time.Hour

// side is one of the two implementations that must not differ.
type side struct {
	store  fence.Store
	log    stream.Log
	drop   func(fence.TileID) error                // removes the owner hash
	expire func(fence.TileID) error                // lets the owner hash's time to live end
	lose   func(fence.TileID) error                // removes the stream
	age    func(fence.TileID, time.Duration) error // makes all marks older
}

// stage is where calls are made on both sides.
type stage struct {
	client *redis.ClusterClient
	redis  side

	mu      sync.Mutex
	answers map[string]int // how often each kind of answer was given
}

func newStage(t testing.TB) *stage {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: stacktest.Redis(t)})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisfence.New(client, &redisfence.Config{TTL: lifetime, Persistence: redisfence.Volatile})
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	st := &stage{client: client, answers: map[string]int{}}
	st.redis = side{store: store, log: redisstream.New(store, client), drop: st.drop, expire: st.expire, lose: st.lose,
		age: st.age}
	return st
}

func (st *stage) drop(tile fence.TileID) error {
	return st.client.Del(context.Background(), fence.KeysOf(tile).Owner).Err()
}

// expire leaves an owner hash whose time is over, which Redis removes when the next call meets it.
func (st *stage) expire(tile fence.TileID) error {
	err := st.client.PExpire(context.Background(), fence.KeysOf(tile).Owner, time.Millisecond).Err()
	time.Sleep(3 * time.Millisecond)
	return err
}

func (st *stage) lose(tile fence.TileID) error {
	return st.client.Del(context.Background(), fence.KeysOf(tile).Stream).Err()
}

func (st *stage) age(tile fence.TileID, d time.Duration) error {
	key := fence.KeysOf(tile).Marks
	marks, err := st.client.HGetAll(context.Background(), key).Result()
	for field, value := range marks {
		if at, bad := strconv.ParseInt(value, 10, 64); bad == nil && (strings.HasSuffix(field, ".at") ||
			strings.HasSuffix(field, ".silent")) {
			err = errors.Join(err, st.client.HSet(context.Background(), key, field, at-d.Milliseconds()).Err())
		}
	}
	return err
}

// forget removes everything Redis has of a tile.
func (st *stage) forget(tile fence.TileID) error {
	k := fence.KeysOf(tile)
	return st.client.Del(context.Background(), k.Owner, k.Stream, k.Snapshot, k.Marks, k.Dead).Err()
}

func newMemory() (side, *memfence.Store) {
	store := memfence.NewTTL(lifetime)
	log := memstream.New(store)
	drop := func(tile fence.TileID) error {
		store.Update(tile, func(s *memfence.State) { s.Owner = fence.Owner{} })
		return nil
	}
	lose := func(tile fence.TileID) error {
		store.Update(tile, func(s *memfence.State) { s.Entries = nil })
		return nil
	}
	age := func(tile fence.TileID, d time.Duration) error {
		log.AgeMarks(tile, d)
		return nil
	}
	return side{store: store, log: log, drop: drop, expire: drop, lose: lose, age: age}, store
}

// play makes calls on both sides, each drawn by next from what the memory holds, and returns them up to
// the first whose replies differ, or take the tile back, with the difference.
func (st *stage) play(tile fence.TileID, steps int, next func(*memfence.Store) call) (calls []call, difference string) {
	memory, store := newMemory()
	var seen floor
	for i := range steps {
		c := next(store)
		calls = append(calls, c)
		want, got := c.on(tile, memory), c.on(tile, st.redis)
		st.count(c, want)
		if i%32 == 31 || i == steps-1 {
			want, got = append(want, whole(tile, memory)...), append(got, whole(tile, st.redis)...)
		}
		if !reflect.DeepEqual(want, got) {
			return calls, fmt.Sprintf("memory: %+v\nredis:  %+v", want, got)
		}
		store.Update(tile, func(s *memfence.State) { difference = seen.rise(c, got, s) })
		if difference != "" {
			return calls, difference
		}
	}
	return calls, ""
}

func (st *stage) count(c call, reply []any) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.answers[c.answer(reply)]++
}

// shrink drops calls as long as what is left still makes a difference, and returns what is left.
func (st *stage) shrink(tile fence.TileID, calls []call) ([]call, string) {
	replay := func(calls []call) ([]call, string) {
		if err := st.forget(tile); err != nil {
			return nil, ""
		}
		i := 0
		return st.play(tile, len(calls), func(*memfence.Store) call { i++; return calls[i-1] })
	}
	calls, difference := replay(calls)
	for size := len(calls) / 2; size > 0 && difference != ""; size /= 2 {
		for from := 0; from+size <= len(calls); {
			fewer, d := replay(slices.Delete(slices.Clone(calls), from, from+size))
			if d == "" {
				from += size
				continue
			}
			calls, difference = fewer, d
		}
	}
	return calls, difference
}

// episode plays one tile's worth of random calls and fails the test with the shortest story it can find.
func (st *stage) episode(t testing.TB, rng *rand.Rand, steps int) {
	t.Helper()
	tile := fence.TileID(rand.Uint64()>>1 | 1) // not the seed's: the tile of an earlier run is not empty
	defer func() { assert.NoError(t, st.forget(tile)) }()
	d := drawer{rng: rng, tile: tile}
	calls, difference := st.play(tile, steps, d.next)
	if difference == "" {
		return
	}
	if shorter, still := st.shrink(tile, calls); still != "" {
		calls, difference = shorter, still
	}
	var story strings.Builder
	for _, c := range calls {
		fmt.Fprintf(&story, "  %s\n", c)
	}
	t.Errorf("memory and Redis differ after:\n%s%s", &story, difference)
}

// TestDifferential makes the same random calls, right ones and wrong ones of every kind, on the
// in-process specification and on Redis, and requires the same replies and the same stream. It logs its
// seed; TILEFENCE_SEED repeats it, and TILEFENCE_STEPS makes it longer.
func TestDifferential(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	const workers, length = 16, 160 // so many at once that calls share pipelines
	seed, steps := uint64(time.Now().UnixNano()), uint64(40_000)
	if testing.Short() {
		steps /= 10
	}
	for name, number := range map[string]*uint64{"TILEFENCE_SEED": &seed, "TILEFENCE_STEPS": &steps} {
		if s := os.Getenv(name); s != "" {
			var err error
			*number, err = strconv.ParseUint(s, 10, 64)
			require.NoError(t, err, name)
		}
	}
	t.Logf("rerun: TILEFENCE_SEED=%d TILEFENCE_STEPS=%d go test -run '^%s$'", seed, steps, t.Name())
	var wg sync.WaitGroup
	for worker := range uint64(workers) {
		rng := rand.New(rand.NewPCG(seed, worker))
		wg.Go(func() {
			for done := uint64(0); done < steps/workers && !t.Failed(); done += length {
				st.episode(t, rng, length)
			}
		})
	}
	wg.Wait()
	t.Logf("answers: %v", st.answers)
	if steps >= 10_000 && !t.Failed() {
		for _, answer := range everyAnswer {
			assert.NotZero(t, st.answers[answer], "no call was answered with %q", answer)
		}
	}
}

// byteSource gives the numbers a fuzzer chose, and after them numbers that depend on nothing.
type byteSource struct {
	data  []byte
	after uint64
}

func (s *byteSource) Uint64() uint64 {
	if len(s.data) < 8 {
		s.after += 0x9e3779b97f4a7c15 // not zeros: a random number below n may be drawn until it is not zero
		return s.after
	}
	n := binary.LittleEndian.Uint64(s.data)
	s.data = s.data[8:]
	return n
}

// FuzzDifferential is TestDifferential with a fuzzer in place of the random numbers. Run it with
// -fuzzminimizetime 1x: what the client's goroutines do differs from run to run, so that the fuzzer would
// try for a minute to minimise each input. It needs the servers: without them it fails rather than fuzz nothing.
func FuzzDifferential(f *testing.F) {
	if flag.Lookup("test.fuzz").Value.String() != "" && os.Getenv(devstack.EnvRedis) == "" {
		f.Fatal("nothing would be fuzzed: run it with tilectl dev -parts coordination --")
	}
	st := newStage(f)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		var seed []byte
		for range 400 {
			seed = binary.LittleEndian.AppendUint64(seed, rng.Uint64())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		st.episode(t, rand.New(&byteSource{data: data}), min(len(data)/24, 200))
	})
}
