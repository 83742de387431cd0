package tilehost

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// burst sends promotions of the given classes through a pacer all at once, each taking some time, and
// returns the order in which they began and when.
func burst(t *testing.T, p *pacer, classes []int, took time.Duration) (order []int, began []time.Duration) {
	start := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	underWay, most := 0, 0
	for _, class := range classes {
		all.Go(func() {
			leave, err := p.enter(t.Context(), class)
			assert.NoError(t, err)
			mu.Lock()
			order, began = append(order, class), append(began, time.Since(start))
			underWay++
			most = max(most, underWay)
			mu.Unlock()
			time.Sleep(took)
			mu.Lock()
			underWay--
			mu.Unlock()
			leave()
			leave() // once or more often
		})
	}
	all.Wait()
	assert.LessOrEqual(t, most, p.limit)
	assert.Zero(t, p.underWay)
	return order, began
}

func TestPacerKeepsLimitRateAndOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		classes := make([]int, 2000)
		for i := range classes {
			classes[i] = random.IntN(12)
		}
		p := newPacer(8, 1000, 20*time.Millisecond)
		order, began := burst(t, p, classes, 5*time.Millisecond)
		assert.GreaterOrEqual(t, began[0], 10*time.Millisecond, "the burst is ranked before it begins")
		assert.LessOrEqual(t, began[0], 21*time.Millisecond)
		assert.True(t, slices.IsSortedFunc(order, func(a, b int) int { return b - a }), "hottest first")
		for i := range began[1000:] {
			inOneSecond := began[1000+i] - began[i]
			require.GreaterOrEqual(t, inOneSecond, time.Second-pacerSlack-time.Millisecond,
				"more than the rate from the %dth", i)
		}
		assert.Less(t, began[len(began)-1], 2100*time.Millisecond, "and not less than the rate either")
	})
}

func TestPacerLimitBindsWhenPromotionsAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, began := burst(t, newPacer(4, 1_000_000, 0), make([]int, 40), time.Second)
		assert.Equal(t, 9*time.Second, began[len(began)-1].Truncate(time.Second))
	})
}

func TestPacerUrgentGoesBeforeTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(2, 10, 20*time.Millisecond)
		go burst(t, p, make([]int, 50), time.Millisecond) // five seconds of others
		time.Sleep(time.Second + 50*time.Millisecond)
		asked := time.Now()
		leave, err := p.enter(t.Context(), urgentClass)
		require.NoError(t, err)
		assert.Zero(t, time.Since(asked))
		leave()
		time.Sleep(10 * time.Second)
	})
}

func TestPacerForgetsWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(1, 1_000_000, 0)
		leave, err := p.enter(t.Context(), 0)
		require.NoError(t, err)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		refused := make(chan error)
		for range 3 {
			go func() {
				_, err := p.enter(ctx, 5)
				refused <- err
			}()
		}
		entered := make(chan func())
		go func() {
			leave, err := p.enter(t.Context(), 1)
			assert.NoError(t, err)
			entered <- leave
		}()
		synctest.Wait()
		cancel(gone)
		for range 3 {
			assert.ErrorIs(t, <-refused, gone)
		}
		leave()
		(<-entered)()
		assert.Zero(t, p.underWay)
		assert.Empty(t, p.waiting)
	})
}

// Two processes that follow the same tiles of one heat seldom promote the same one at the same time.
func TestPacersOfTwoProcessesSeldomCollide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tiles = 1000
		var mu sync.Mutex
		by := make([]int, tiles) // processes that promote the tile just now, or have
		collisions := 0
		var all sync.WaitGroup
		both := []*pacer{newPacer(8, 1000, 20*time.Millisecond), newPacer(8, 1000, 20*time.Millisecond)}
		for tile := range tiles {
			synctest.Wait() // the wishes come in the same order
			for _, p := range both {
				all.Go(func() {
					leave, err := p.enter(t.Context(), 3)
					assert.NoError(t, err)
					defer leave()
					mu.Lock()
					taken := by[tile] == 2
					if by[tile] == 1 {
						collisions++
					}
					by[tile] = max(by[tile], 1)
					mu.Unlock()
					if taken {
						return
					}
					time.Sleep(5 * time.Millisecond)
					mu.Lock()
					by[tile] = 2
					mu.Unlock()
				})
			}
		}
		all.Wait()
		assert.Less(t, collisions, tiles/20, "in step it would be most of them")
	})
}

func TestHeatClass(t *testing.T) {
	for _, h := range []float64{0, -1, math.NaN(), math.Inf(-1), 1.0 / 1000} {
		assert.Zero(t, heatClass(h))
	}
	last := 0
	for h := 1.0 / 256; h < 1e9; h *= 2 {
		require.Equal(t, last+1, heatClass(h))
		require.Equal(t, last+1, heatClass(h*1.9))
		last++
	}
	assert.Greater(t, urgentClass, heatClass(math.Inf(1)))
}
