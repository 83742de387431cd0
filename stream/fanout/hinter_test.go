package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
)

// recorder is a HintPublisher that notes what it is given and when, and fails or hangs on demand.
type recorder struct {
	mu    sync.Mutex
	calls []call
	under int // calls under way
	most  int // at once

	hang func(fence.TileID) bool // hints that are not handed over until the context ends
	fail error                   // what every call returns
}

type call struct {
	at    time.Time
	tiles []fence.TileID
}

func (r *recorder) PublishHints(ctx context.Context, tiles []fence.TileID) error {
	r.mu.Lock()
	r.calls = append(r.calls, call{time.Now(), append([]fence.TileID{}, tiles...)})
	r.under++
	r.most = max(r.most, r.under)
	hang, fail := r.hang, r.fail
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.under--
		r.mu.Unlock()
	}()
	lost := &fanout.PublishError{Err: ctx.Err()}
	for _, t := range tiles {
		lost.Handed = append(lost.Handed, hang == nil || !hang(t))
	}
	if slices.Contains(lost.Handed, false) {
		<-ctx.Done()
		return fmt.Errorf("publish: %w", lost)
	}
	return fail
}

func (r *recorder) seen() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[:len(r.calls):len(r.calls)]
}

func (r *recorder) tiles() (all []fence.TileID) {
	for _, c := range r.seen() {
		all = append(all, c.tiles...)
	}
	return all
}

// running starts a Hinter in the bubble; the function stops it.
func running(t *testing.T, pub fanout.HintPublisher, tuning fanout.Tuning) (*fanout.Hinter, func()) {
	h, err := fanout.NewHinter(pub, nil)
	require.NoError(t, err)
	h.Tune(tuning)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	synctest.Wait()
	return h, func() {
		cancel()
		require.NoError(t, <-done)
	}
}

func tileOfGroup(g int) fence.TileID {
	for t := fence.TileID(1); ; t++ {
		if fanout.HintGroupOf(t) == g {
			return t
		}
	}
}

// TestHinterFlushesAtOnceThenTogether: the first hint waits for nothing, those within the next Every
// share one publish, and a tile is named once in it.
func TestHinterFlushesAtOnceThenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		h, stop := running(t, r, fanout.Tuning{})
		began := time.Now()
		h.Hint(1)
		synctest.Wait()
		require.Equal(t, []call{{began, []fence.TileID{1}}}, r.seen())
		for range 3 {
			for tile := fence.TileID(1); tile <= 100; tile++ {
				h.Hint(tile)
			}
		}
		h.Hint(0)
		synctest.Wait()
		require.Len(t, r.seen(), 1, "not sooner than Every after the last")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Len(t, r.seen(), 2)
		require.Equal(t, time.Millisecond, r.seen()[1].at.Sub(began))
		require.Len(t, r.seen()[1].tiles, 100)
		require.Equal(t, fanout.HinterStats{Hinted: 301, Coalesced: 200, Sent: 101, Flushes: 2}, h.Stats())

		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, r.seen(), 2, "nothing to say, nothing sent")
		h.Hint(7)
		synctest.Wait()
		require.Len(t, r.seen(), 3, "after a pause the next goes at once")
		stop()
	})
}

// TestHinterWhileFanoutHangs: one publish is under way at most, the set stays bounded, Hint does not wait,
// and the rest is dropped and counted.
func TestHinterWhileFanoutHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{hang: func(fence.TileID) bool { return true }}
		h, stop := running(t, r, fanout.Tuning{Timeout: time.Minute, MaxTiles: 50})
		began := time.Now()
		h.Hint(1)
		synctest.Wait()
		for range 4 {
			for tile := fence.TileID(1); tile <= 200; tile++ {
				h.Hint(tile)
			}
		}
		synctest.Wait()
		require.Zero(t, time.Since(began), "Hint waits for nobody")
		s := h.Stats()
		require.Equal(t, 50, s.Waiting)
		require.EqualValues(t, 801, s.Hinted)
		require.Equal(t, s.Hinted, 1+50+s.Coalesced+s.Dropped)
		require.Len(t, r.seen(), 1)
		stop()
		require.Equal(t, 1, r.most)
		s = h.Stats()
		require.Zero(t, s.Waiting)
		require.Equal(t, s.Hinted, s.Coalesced+s.Dropped+s.Sent+s.Failed, "every hint is accounted for")
	})
}

// TestHinterLeavesAHungNodeAlone: the groups of a node that hangs are tried once a Pause; those of the
// others go through, and are never later than one Timeout.
func TestHinterLeavesAHungNodeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := tileOfGroup(3), tileOfGroup(4)
		r := &recorder{hang: func(t fence.TileID) bool { return fanout.HintGroupOf(t) == 3 }}
		h, stop := running(t, r, fanout.Tuning{})
		const ticks = 1000
		for range ticks {
			h.Hint(bad)
			h.Hint(good)
			time.Sleep(5 * time.Millisecond)
		}
		tries, sent := 0, 0
		var last time.Time
		longest := time.Duration(0)
		for _, c := range r.seen() {
			for _, tile := range c.tiles {
				if tile == bad {
					tries++
					continue
				}
				if sent > 0 {
					longest = max(longest, c.at.Sub(last))
				}
				sent, last = sent+1, c.at
			}
		}
		require.InDelta(t, 5, tries, 1, "five seconds, one try a Pause")
		require.Greater(t, sent, ticks*8/10)
		require.LessOrEqual(t, longest, 100*time.Millisecond+5*time.Millisecond)
		r.mu.Lock()
		r.hang = nil
		r.mu.Unlock()
		time.Sleep(time.Second)
		before := h.Stats()
		h.Hint(bad)
		synctest.Wait()
		require.Equal(t, before.Sent+1, h.Stats().Sent, "it is tried again after the Pause")
		stop()
	})
}

// TestHinterFailure: an error that knows nothing of the parts counts for all.
func TestHinterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{fail: errors.New("no")}
		h, stop := running(t, r, fanout.Tuning{})
		h.Hint(tileOfGroup(0))
		synctest.Wait()
		h.Hint(tileOfGroup(0))
		h.Hint(tileOfGroup(1))
		time.Sleep(10 * time.Millisecond)
		require.Equal(t, fanout.HinterStats{Hinted: 3, Dropped: 1, Failed: 2, Flushes: 2}, h.Stats())
		stop()
	})
}

// TestHinterLastFlush: what waits when Run ends is still sent, and so is what was hinted before it began. A Hinter runs
// once.
func TestHinterLastFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		h, stop := running(t, r, fanout.Tuning{Every: time.Hour})
		require.ErrorIs(t, h.Run(t.Context()), fence.ErrAlreadyRun)
		h.Hint(1)
		synctest.Wait()
		h.Hint(2)
		stop()
		require.Equal(t, []fence.TileID{1, 2}, r.tiles())
		require.ErrorIs(t, h.Run(t.Context()), fence.ErrAlreadyRun)

		h, err := fanout.NewHinter(r, nil)
		require.NoError(t, err)
		h.Hint(3)
		require.Equal(t, 1, h.Stats().Waiting)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, h.Run(ctx))
		require.Equal(t, []fence.TileID{1, 2, 3}, r.tiles())
	})
}

// TestHinterLosesNothingAtItsEnd: a hint that was given before the end of Run is sent, whatever Run was
// at.
func TestHinterLosesNothingAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			r := &recorder{}
			h, stop := running(t, r, fanout.Tuning{})
			time.Sleep(time.Second)
			h.Hint(1)
			stop()
			require.Equal(t, []fence.TileID{1}, r.tiles())
		}
	})
}

func TestHinterArguments(t *testing.T) {
	_, err := fanout.NewHinter(nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}

// TestHinterConcurrent: every hint reaches its group, or is accounted for.
func TestHinterConcurrent(t *testing.T) {
	broker := memfanout.New()
	var mu sync.Mutex
	got := map[fence.TileID]bool{}
	for g := range fanout.HintGroups {
		stop, err := broker.SubscribeHints(g, func(tiles []fence.TileID) {
			mu.Lock()
			defer mu.Unlock()
			for _, t := range tiles {
				got[t] = true
			}
		}, func(bool) {})
		require.NoError(t, err)
		defer stop()
	}
	h, err := fanout.NewHinter(broker, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	const each = 500
	var wg sync.WaitGroup
	for p := range 8 {
		wg.Go(func() {
			for i := range each {
				h.Hint(fence.TileID(1 + (p*each+i)%1000))
				_ = h.Stats()
			}
		})
	}
	wg.Wait()
	cancel()
	require.NoError(t, <-done)
	s := h.Stats()
	require.EqualValues(t, 8*each, s.Hinted)
	require.Equal(t, s.Hinted, s.Coalesced+s.Sent)
	waittest.Until(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == 1000
	}, 20*time.Second, time.Millisecond)
}

type nowhere struct{}

func (nowhere) PublishHints(context.Context, []fence.TileID) error { return nil }

// BenchmarkHint is what a tile's tick loop pays.
func BenchmarkHint(b *testing.B) {
	for _, tiles := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprintf("%d tiles", tiles), func(b *testing.B) {
			h, err := fanout.NewHinter(nowhere{}, nil)
			require.NoError(b, err)
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- h.Run(ctx) }()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					h.Hint(fence.TileID(i%tiles + 1))
				}
			})
			cancel()
			require.NoError(b, <-done)
		})
	}
}
