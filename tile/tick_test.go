package tile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

func TestSlowTickIsMeasuredAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var ticks []tile.TickInfo
		slow := 0
		p := w.start("a:1", tile.Config{
			Hooks: tile.Hooks{Ticked: func(i tile.TickInfo) { ticks = append(ticks, i) }},
			Commit: func(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
				if slow++; slow == 3 {
					time.Sleep(1700 * time.Millisecond)
				}
				return w.store.Commit(ctx, c)
			}})
		time.Sleep(5 * time.Second)
		require.NoError(t, p.drain())
		assert.Equal(t, 1700*time.Millisecond, ticks[2].Took)
		assert.Equal(t, 2, ticks[3].Missed, "two tick times passed while it ran")
		assert.Less(t, ticks[3].Late, 500*time.Millisecond)
		assert.Zero(t, ticks[4].Late, "back in step")
		assert.EqualValues(t, 2, p.Status().Missed)
		for i, tick := range ticks {
			assert.EqualValues(t, i+1, tick.Tick, "no tick number is skipped")
		}
	})
}

// flood is a game whose every intent makes a large event.
type flood struct{ ledgerRules }

func (f *flood) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for _, in := range intents {
		e := make([]byte, stream.MaxEvent)
		copy(e, in.Body)
		events, outcomes = append(events, e), append(outcomes, stream.Applied)
	}
	return events, outcomes
}

func TestWhatDoesNotFitIntoABatchWaitsForTheNextTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rules := &flood{}
		commits := 0
		p, err := tile.New(testTile, "a:1", w.seams(), rules,
			&tile.Config{Hooks: tile.Hooks{Committed: func(i tile.CommitInfo) { commits++ }}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		var wg sync.WaitGroup
		for i := range 40 { // 2.5 MiB of events; a batch holds one
			wg.Go(func() {
				o, err := p.Submit(t.Context(), tile.Intent{Tile: testTile, ActionID: fmt.Sprint(i), Body: []byte("x")})
				assert.NoError(t, err)
				assert.Equal(t, stream.Applied, o.Outcome)
			})
		}
		go func() { ended <- p.Run(ctx) }()
		wg.Wait()
		stop()
		require.NoError(t, <-ended)
		assert.Len(t, rules.Words, 40)
		assert.Greater(t, commits, 2)
	})
}

func TestUnreachableStoreFreezesTheTileAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		cut := false
		p := w.start("a:1", tile.Config{Commit: func(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
			mu.Lock()
			down := cut
			mu.Unlock()
			if down {
				<-ctx.Done()
				return fence.Receipt{}, &fence.StoreError{Op: "commit", Tile: c.Tile, Outcome: fence.ErrUnknownOutcome,
					Err: ctx.Err()}
			}
			return w.store.Commit(ctx, c)
		}})
		p.say(t, "", "before")
		mu.Lock()
		cut = true
		mu.Unlock()
		out := make(chan stream.Outcome)
		go func() {
			o, err := p.Submit(context.Background(), tile.Intent{Tile: testTile, Body: []byte("during")})
			assert.NoError(t, err)
			out <- o.Outcome
		}()
		time.Sleep(25 * time.Second)
		frozen := p.Status()
		assert.True(t, frozen.Pending)
		mu.Lock()
		cut = false
		mu.Unlock()
		assert.Equal(t, stream.Applied, <-out)
		assert.Less(t, p.Status().Tick, frozen.Tick+3, "no tick was played meanwhile")
		require.NoError(t, p.drain())
		assert.Equal(t, []string{"before", "during"}, w.history())
	})
}

func TestDrainGivesUpOnAStoreThatStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start("a:1", tile.Config{Commit: func(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
			return fence.Receipt{}, &fence.StoreError{Op: "commit", Tile: c.Tile, Outcome: fence.ErrUnknownOutcome,
				Err: context.DeadlineExceeded}
		}})
		asked := make(chan error, 1)
		go func() {
			_, err := p.Submit(context.Background(), tile.Intent{Tile: testTile, Body: []byte("x")})
			asked <- err
		}()
		time.Sleep(time.Second)
		began := time.Now()
		require.ErrorIs(t, p.drain(), tile.ErrUnreleased)
		assert.WithinDuration(t, began.Add(5*time.Second), time.Now(), time.Second)
		assert.ErrorIs(t, <-asked, tile.ErrUnresolved, "it may or may not have been committed")
	})
}

func idle(tb testing.TB, refreshEvery int) *tile.TileProcessor {
	w := newWorld(nil)
	p, err := tile.New(testTile, "a:1", w.seams(), &ledgerRules{},
		&tile.Config{RefreshEvery: refreshEvery, TickInterval: 100 * time.Millisecond})
	require.NoError(tb, err)
	require.NoError(tb, p.BootOnly(tb.Context()))
	return p
}

// BenchmarkIdleTick is a tick of a tile in which nothing happens, over memory.
func BenchmarkIdleTick(b *testing.B) {
	for _, every := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("refresh every %d", every), func(b *testing.B) {
			p := idle(b, every)
			b.ReportAllocs()
			for b.Loop() {
				if err := p.PlayTicks(context.Background(), 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestQuietTickAllocatesNothing(t *testing.T) {
	p := idle(t, 150)
	require.NoError(t, p.PlayTicks(t.Context(), 10))
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = p.PlayTicks(context.Background(), 1) }))
}

func TestIdleOwnerRefreshesAndLearnsOfItsSuccessorInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{RefreshEvery: 10, SnapshotEvery: 7})
		a.say(t, "", "one")
		time.Sleep(10 * time.Second)
		before := 0
		a.line.set(func(l *line) { before = l.writes })
		time.Sleep(50 * time.Second)
		a.line.set(func(l *line) { assert.InDelta(t, 10, l.writes-before, 1) })
		assert.Greater(t, a.Status().Tick, fence.Tick(110), "ticks are played all the same")
		b := w.process("b:1", tile.Config{TakeOver: true})
		b.eventually(t, tile.Serving, time.Second)
		a.eventually(t, tile.StoodDown, 5*time.Second+500*time.Millisecond)
		require.NoError(t, b.drain())
	})
}

func TestForgottenBatchesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{ConfirmEvery: never, Limits: tile.Limits{KeepBytes: 5 * 170}})
		for i := range 20 {
			a.say(t, "", fmt.Sprint(i))
		}
		assert.InDelta(t, 16, a.Status().Forgotten, 1)
		assert.Equal(t, 5, a.Status().Kept)
		require.NoError(t, a.drain())
	})
}

// sluggish is a ledger whose ticks take a while, and which writes down the pace that it was given, and when in ticks.
type sluggish struct {
	ledgerRules
	takes atomic.Int64 // time.Duration, for each tick
	ticks atomic.Int64 // that were played
}

func (s *sluggish) Resolve(tick fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	s.ticks.Add(1)
	time.Sleep(time.Duration(s.takes.Load()))
	return s.ledgerRules.Resolve(tick, intents)
}

func (s *sluggish) Dilated(pace float64) []byte { return fmt.Append(nil, "pace=", pace) }

// paces are the paces that a tile has announced.
func paces(words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, "pace=") })
}

// TestTimeIsDilated: while ticks take three times as long as they may, each of them is played, and they all last long
// enough; clients learn of it, no follower takes the tile, no intent is lost, and the usual pace returns by itself.
func TestTimeIsDilated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		seams := w.seams()
		limits := tile.Limits{MaxDilation: 8}
		rules := &sluggish{}
		p, err := tile.New(testTile, "a:1", seams, rules, &tile.Config{Limits: limits})
		require.NoError(t, err)
		owner := launch(w.t, p, nil)
		owner.say(t, "", "quick")
		follower := w.start("b:1", tile.Config{Follow: true, Limits: limits})
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"pace=1"}, paces(w.history()), "an owner says at which pace it begins")
		assert.Zero(t, owner.Status().Dilation)

		rules.takes.Store(int64(1200 * time.Millisecond))
		time.Sleep(10 * time.Second)
		before, played := owner.Status(), rules.ticks.Load()
		for i := range 20 {
			owner.say(t, fmt.Sprint(i), fmt.Sprint("slow", i))
		}
		time.Sleep(time.Minute)
		after := owner.Status()
		assert.InDelta(t, 3, after.Dilation, 0.25)
		assert.Equal(t, before.Missed, after.Missed, "none is missed")
		assert.InDelta(t, rules.ticks.Load()-played, int64(after.Tick-before.Tick), 1, "none is left out")
		assert.Equal(t, []string{"pace=1", fmt.Sprint("pace=", after.Dilation)}, paces(w.history()))

		rules.takes.Store(0)
		time.Sleep(5 * time.Minute)
		assert.EqualValues(t, 1, owner.Status().Dilation)
		told := paces(w.history())
		assert.Equal(t, "pace=1", told[len(told)-1])
		start := owner.Status().Tick
		time.Sleep(10 * time.Second)
		assert.InDelta(t, 20, int64(owner.Status().Tick-start), 1)
		assert.Equal(t, tile.Following, follower.Status().State)
		assert.Equal(t, owner.Status().Position, follower.Status().Position)
		assert.Equal(t, 1+20+len(told), len(w.history()))

		require.NoError(t, follower.drain())
		require.NoError(t, owner.drain())
	})
}

// TestTimeIsNotDilatedFurther than a game allows, nor without its say.
func TestTimeIsNotDilatedFurther(t *testing.T) {
	for most, want := range map[int]float64{0: 0, 2: 2} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			rules := &sluggish{}
			rules.takes.Store(int64(3 * time.Second))
			p, err := tile.New(testTile, "a:1", w.seams(), rules,
				&tile.Config{Limits: tile.Limits{MaxDilation: most}})
			require.NoError(t, err)
			owner := launch(w.t, p, nil)
			time.Sleep(time.Minute)
			s := owner.Status()
			assert.InDelta(t, want, s.Dilation, 0)
			assert.Positive(t, s.Missed)
			assert.Equal(t, most > 0, len(paces(w.history())) > 0)
			require.NoError(t, owner.drain())
		})
	}
}
