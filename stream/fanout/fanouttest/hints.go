package fanouttest

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout"
)

// hintbox keeps the hinted tiles of one group that its test is about. Unlike the channels of tiles, those
// of hint groups are shared with other tests on the same servers.
type hintbox struct {
	t     *testing.T
	group int
	stop  func()

	mu     sync.Mutex
	mine   map[fence.TileID]bool
	got    map[fence.TileID]int
	states []bool // what up was called with
	fault  string
}

func (b *bench) hintbox(group int, mine ...fence.TileID) *hintbox {
	b.t.Helper()
	in := &hintbox{t: b.t, group: group, mine: map[fence.TileID]bool{}, got: map[fence.TileID]int{}}
	for _, t := range mine {
		in.mine[t] = true
	}
	stop, err := b.HintSubscriber.SubscribeHints(group, in.deliver, in.up)
	require.NoError(b.t, err)
	b.t.Cleanup(stop)
	in.stop = stop
	return in
}

func (in *hintbox) deliver(tiles []fence.TileID) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, t := range tiles {
		if fanout.HintGroupOf(t) != in.group {
			in.fault = "a tile of another group: " + t.String()
		}
		if in.mine[t] {
			in.got[t]++
		}
	}
}

func (in *hintbox) up(inForce bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.states = append(in.states, inForce)
}

// awaitUp waits until the subscription is in force.
func (in *hintbox) awaitUp() {
	in.t.Helper()
	waittest.Until(in.t, func() bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		return len(in.states) > 0 && in.states[len(in.states)-1]
	}, patience, time.Millisecond, "up(true) is called")
	in.mu.Lock()
	defer in.mu.Unlock()
	require.True(in.t, in.states[0], "it was not up before")
}

// await waits until each of the tiles was hinted at least once.
func (in *hintbox) await(tiles ...fence.TileID) {
	in.t.Helper()
	waittest.Until(in.t, func() bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		for _, t := range tiles {
			if in.got[t] == 0 {
				return false
			}
		}
		return true
	}, patience, time.Millisecond, "a hint of group %d did not arrive", in.group)
	in.mu.Lock()
	defer in.mu.Unlock()
	require.Empty(in.t, in.fault)
}

// tilesOf returns n tiles of a group that no other test uses.
func tilesOf(group, n int) []fence.TileID {
	var tiles []fence.TileID
	for len(tiles) < n {
		if t := fence.TileID(rand.Uint64() | 1); fanout.HintGroupOf(t) == group {
			tiles = append(tiles, t)
		}
	}
	return tiles
}

func (b *bench) hint(tiles ...fence.TileID) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	require.NoError(b.t, b.HintPublisher.PublishHints(ctx, tiles))
}

// hintsArrive: tiles of all groups in one call, more than fit into a message.
func hintsArrive(t *testing.T, b *bench) {
	const each = fanout.MaxHints + 100
	var all []fence.TileID
	of := make([][]fence.TileID, fanout.HintGroups)
	inboxes := make([]*hintbox, fanout.HintGroups)
	for g := range fanout.HintGroups {
		of[g] = tilesOf(g, 3)
		if g == 5 {
			of[g] = tilesOf(g, each)
		}
		all = append(all, of[g]...)
		inboxes[g] = b.hintbox(g, of[g]...)
	}
	for _, in := range inboxes {
		in.awaitUp()
	}
	rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	b.hint(all...)
	for g, in := range inboxes {
		in.await(of[g]...)
	}
	b.hint()
	for g, in := range inboxes {
		in.stop()
		for _, tile := range of[g] {
			require.Equal(t, 1, in.got[tile], "one hint, one delivery")
		}
		require.Equal(t, []bool{true}, in.states, "nothing broke")
	}
}

// hintsToEverySubscription: two bridges hear of the same tile.
func hintsToEverySubscription(_ *testing.T, b *bench) {
	tiles := tilesOf(3, 10)
	one, two := b.hintbox(3, tiles...), b.hintbox(3, tiles...)
	one.awaitUp()
	two.awaitUp()
	b.hint(tiles...)
	one.await(tiles...)
	two.await(tiles...)
	one.stop()
	more := tilesOf(3, 1)
	three := b.hintbox(3, more...)
	three.awaitUp()
	b.hint(more...)
	three.await(more...)
}

// hintsApartFromFrames: a tile's frames and its hints do not mix.
func hintsApartFromFrames(t *testing.T, b *bench) {
	tile := tilesOf(7, 1)[0]
	frames, hints := b.subscribe(tile), b.hintbox(7, tile)
	hints.awaitUp()
	b.hint(tile)
	hints.await(tile)
	require.Empty(t, frames.all())
	b.numbered(tile, 0, 2)
	frames.awaitNumbers(2)
	hints.stop()
	require.Equal(t, 1, hints.got[tile])
}

func hintArguments(t *testing.T, b *bench) {
	none := func([]fence.TileID) {}
	up := func(bool) {}
	for _, try := range []func() (func(), error){
		func() (func(), error) { return b.HintSubscriber.SubscribeHints(-1, none, up) },
		func() (func(), error) { return b.HintSubscriber.SubscribeHints(fanout.HintGroups, none, up) },
		func() (func(), error) { return b.HintSubscriber.SubscribeHints(0, nil, up) },
		func() (func(), error) { return b.HintSubscriber.SubscribeHints(0, none, nil) },
	} {
		stop, err := try()
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
		require.Nil(t, stop)
	}
	tile := tilesOf(0, 1)[0]
	in := b.hintbox(0, tile)
	in.awaitUp()
	require.ErrorIs(t, b.HintPublisher.PublishHints(t.Context(), []fence.TileID{tile, 0}), fence.ErrInvalidArgument)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.HintPublisher.PublishHints(ctx, []fence.TileID{tile}), context.Canceled)
	b.hint(tile)
	in.await(tile)
	in.stop()
	require.Equal(t, 1, in.got[tile], "a malformed call sends nothing")
}

func hintStopIsFinal(t *testing.T, b *bench) {
	for range 20 {
		tiles := tilesOf(2, burst)
		var stopped, late atomic.Bool
		note := func() {
			if stopped.Load() {
				late.Store(true)
			}
		}
		stop, err := b.HintSubscriber.SubscribeHints(2, func([]fence.TileID) { note() }, func(bool) { note() })
		require.NoError(t, err)
		b.hint(tiles...)
		stop()
		stopped.Store(true)
		b.hint(tiles...)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(stop)
		}
		wg.Wait()
		require.False(t, late.Load(), "called after stop")
	}
}

// hintsSlowSubscriber: a subscriber that does not keep up loses hints and delays no other.
func hintsSlowSubscriber(t *testing.T, b *bench) {
	tiles := tilesOf(9, 1)
	release := make(chan struct{})
	stop, err := b.HintSubscriber.SubscribeHints(9, func([]fence.TileID) { <-release }, func(bool) {})
	require.NoError(t, err)
	fast := b.hintbox(9, tiles...)
	fast.awaitUp()
	for range 50 * burst {
		b.hint(tiles...)
	}
	fast.await(tiles...)
	close(release)
	stop()
}

// hintsConcurrent: publishers, subscriptions and stops at once.
func hintsConcurrent(t *testing.T, b *bench) {
	lasting := tilesOf(1, 50)
	in := b.hintbox(1, lasting...)
	in.awaitUp()
	var g errgroup.Group
	for p := range 4 {
		g.Go(func() error {
			for i := range 50 {
				if err := b.HintPublisher.PublishHints(t.Context(),
					[]fence.TileID{lasting[i], lasting[(i+p)%50]}); err != nil {
					return err
				}
			}
			return nil
		})
		g.Go(func() error {
			for range 20 {
				stop, err := b.HintSubscriber.SubscribeHints(1, func([]fence.TileID) {}, func(bool) {})
				if err != nil {
					return err
				}
				stop()
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	in.await(lasting...)
}

func hintsLeakNothing(t *testing.T, b *bench) {
	b.hint(tilesOf(4, 1)...) // a back end's lasting connections may start with their first use
	in := b.hintbox(4)
	in.awaitUp()
	in.stop()
	before := goleak.IgnoreCurrent()
	for g := range fanout.HintGroups {
		tiles := tilesOf(g, 1)
		in := b.hintbox(g, tiles...)
		in.awaitUp()
		b.hint(tiles...)
		in.await(tiles...)
		in.stop()
	}
	goleak.VerifyNone(t, before)
}
