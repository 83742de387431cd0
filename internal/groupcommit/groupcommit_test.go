package groupcommit

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/internal/wait/waittest"
)

type request struct {
	Item[*request]
	key     string
	err     error
	setSize int
}

// road is a queue whose sets are sent nowhere: each takes a second, or an hour if it is "slow", and is kept.
type road struct {
	Queue[*request]

	mu    sync.Mutex
	sets  [][]string // the keys of the requests, set by set
	under int        // sets under way
}

func newRoad(calls, bytes int) *road {
	r := &road{}
	r.Send, r.Calls, r.Bytes = r.travel, calls, bytes
	return r
}

func (r *road) travel(ctx context.Context, set []*request) {
	var keys []string
	for _, q := range set {
		keys = append(keys, q.key)
	}
	r.mu.Lock()
	r.sets = append(r.sets, keys)
	r.under++
	if r.under > 1 {
		panic("two sets under way on one queue")
	}
	r.mu.Unlock()
	takes := time.Second
	if keys[0] == "slow" {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	r.mu.Lock()
	r.under--
	r.mu.Unlock()
	for _, q := range set {
		q.err, q.setSize = ctx.Err(), len(set)
	}
}

func (r *road) idle() bool {
	r.Queue.mu.Lock()
	defer r.Queue.mu.Unlock()
	return !r.busy && len(r.waiting) == 0
}

func named(key string, size int) *request {
	return &request{key: key, Item: Item[*request]{Size: size}}
}

// TestLaneGathers: a request alone goes at once; what comes meanwhile goes together, in order of arrival,
// within the bounds.
func TestLaneGathers(t *testing.T) {
	for _, test := range []struct {
		name         string
		calls, bytes int
		sizes        []int
		want         [][]string
	}{
		{"together", 10, 1000, []int{1, 1, 1, 1}, [][]string{{"a"}, {"b", "c", "d"}}},
		{"two calls", 2, 1000, []int{1, 1, 1, 1, 1, 1}, [][]string{{"a"}, {"b", "c"}, {"d", "e"}, {"f"}}},
		{"ten bytes", 10, 10, []int{1, 4, 6, 5, 6, 1}, [][]string{{"a"}, {"b", "c"}, {"d"}, {"e", "f"}}},
		{"over the bound", 10, 10, []int{1, 11, 2, 50, 2}, [][]string{{"a"}, {"b"}, {"c"}, {"d"}, {"e"}}},
		{"one by one", 1, 10, []int{1, 1, 1}, [][]string{{"a"}, {"b"}, {"c"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoad(test.calls, test.bytes)
				var wg sync.WaitGroup
				for i, size := range test.sizes {
					wg.Go(func() {
						q := named(string(rune('a'+i)), size)
						require.NoError(t, r.Do(t.Context(), q))
						require.NoError(t, q.err)
						require.NotZero(t, q.setSize)
					})
					synctest.Wait() // in this order
				}
				began := time.Now()
				wg.Wait()
				require.Equal(t, test.want, r.sets)
				require.Equal(t, time.Duration(len(test.want))*time.Second, time.Since(began))
				require.True(t, r.idle())
			})
		})
	}
}

// TestLaneLeave: a caller that leaves while it waits was not sent; one that leaves while its request is under way has
// an unknown outcome; neither disturbs the others.
func TestLaneLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoad(2, 1000)
		outcomes := map[string]error{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, key := range []string{"a", "under way", "c", "waiting", "e", "waiting too"} {
			ctx := t.Context()
			switch key {
			case "under way", "waiting", "waiting too":
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, 1500*time.Millisecond, errors.New("bored"))
				defer cancel()
			}
			wg.Go(func() {
				err := r.Do(ctx, named(key, 1))
				mu.Lock()
				defer mu.Unlock()
				outcomes[key] = err
			})
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, [][]string{{"a"}, {"under way", "c"}, {"e"}}, r.sets)
		for _, key := range []string{"a", "c", "e"} {
			require.NoError(t, outcomes[key], key)
		}
		var unsent *NotSentError
		for _, key := range []string{"waiting", "waiting too"} {
			require.ErrorAs(t, outcomes[key], &unsent, key)
			require.EqualError(t, unsent.Err, "bored")
		}
		require.NotErrorAs(t, outcomes["under way"], &unsent)
		require.EqualError(t, outcomes["under way"], "bored")
		require.True(t, r.idle())
	})
}

// TestLaneRoom: what finds no room is refused at once and not sent; one that leaves, and a set that goes, make room.
func TestLaneRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoad(2, 1000)
		r.Room = 3
		refused := func(key string) bool {
			err := r.Do(t.Context(), named(key, 1))
			var unsent *NotSentError
			if errors.As(err, &unsent) {
				require.ErrorIs(t, err, ErrFull)
				return true
			}
			require.NoError(t, err)
			return false
		}
		var wg sync.WaitGroup
		send := func(key string) {
			wg.Go(func() { require.False(t, refused(key), key) })
			synctest.Wait()
		}
		send("a")
		ctx, leave := context.WithCancel(t.Context())
		wg.Go(func() { require.ErrorIs(t, r.Do(ctx, named("left", 1)), context.Canceled) })
		synctest.Wait()
		send("b")
		send("c")
		began := time.Now()
		require.True(t, refused("no room"))
		require.Zero(t, time.Since(began))
		leave()
		synctest.Wait()
		send("d")
		require.True(t, refused("again none"))
		time.Sleep(1500 * time.Millisecond) // b and c are under way
		send("e")
		send("f")
		require.True(t, refused("none, once more"))
		wg.Wait()
		require.Equal(t, [][]string{{"a"}, {"b", "c"}, {"d", "e"}, {"f"}}, r.sets)
		require.True(t, r.idle())
	})
}

// TestLanePatience: a set is given as long as the most patient of its callers has.
func TestLanePatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			patience []time.Duration // zero is for ever
			want     time.Duration
		}{
			{[]time.Duration{2 * time.Second, 5 * time.Second, 3 * time.Second}, 5 * time.Second},
			{[]time.Duration{2 * time.Second, 0, 3 * time.Second}, time.Second + time.Hour},
		} {
			r := newRoad(10, 1000)
			var wg sync.WaitGroup
			wg.Go(func() { _ = r.Do(t.Context(), named("first", 1)) })
			synctest.Wait()
			for _, d := range test.patience {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if d > 0 {
					ctx, cancel = context.WithTimeout(ctx, d)
				}
				wg.Go(func() {
					defer cancel()
					_ = r.Do(ctx, named("slow", 1))
				})
			}
			began := time.Now()
			wg.Wait()
			synctest.Wait()
			require.Equal(t, test.want, time.Since(began))
			require.True(t, r.idle())
		}
	})
}

// TestLaneStress: many callers, some of them impatient; no request is forgotten, and no goroutine is left.
func TestLaneStress(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	answered, sent := map[*request]bool{}, 0
	l := &Queue[*request]{Calls: 7, Bytes: 100}
	l.Send = func(_ context.Context, set []*request) {
		mu.Lock()
		sent += len(set)
		for _, q := range set {
			if answered[q] {
				t.Error("sent twice")
			}
			answered[q] = true
		}
		mu.Unlock()
		runtime.Gosched()
	}
	var wg sync.WaitGroup
	const callers, each = 50, 40
	unsent := 0
	for i := range uint64(callers) {
		rng := rand.New(rand.NewPCG(seed, i))
		wg.Go(func() {
			for range each {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(3000))*time.Microsecond)
				q := named("x", rng.IntN(60))
				err := l.Do(ctx, q)
				cancel()
				var left *NotSentError
				mu.Lock()
				switch {
				case err == nil && !answered[q]:
					t.Error("answered without having been sent")
				case errors.As(err, &left):
					unsent++
					if answered[q] {
						t.Error("sent, although it was said not to be")
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	waittest.Until(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !l.busy && len(l.waiting) == 0
	}, 10*time.Second, time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, callers*each, sent+unsent)
	t.Logf("%d of %d left unsent", unsent, callers*each)
}
