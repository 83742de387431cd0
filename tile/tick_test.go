package tile_test

import (
	"context"
	"fmt"
	"sync"
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
		p, err := tile.New(testTile, "a:1", tile.Seams{Authority: w.authority, Store: w.store, Log: w.log}, rules,
			&tile.Config{Hooks: tile.Hooks{Committed: func(i tile.CommitInfo) { commits++ }}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		var wg sync.WaitGroup
		for i := range 40 { // 2.5 MiB of events; a batch holds one
			wg.Go(func() {
				o, err := p.Submit(t.Context(), tile.Intent{Tile: testTile, ActionID: fmt.Sprint(i), Body: []byte("x")})
				assert.NoError(t, err)
				assert.Equal(t, stream.Applied, o)
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
			out <- o
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
