package tile_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
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

// TestIntentLimits: an intent is judged by the same rule wherever it is judged, and the first wrong field is named.
func TestIntentLimits(t *testing.T) {
	long := strings.Repeat("x", tile.MaxName)
	for _, in := range []tile.Intent{
		{Tile: 1}, {Tile: 1, ActionID: long, Actor: long, Body: make([]byte, tile.MaxIntentBody)}, {Tile: 1,
			Actor: "é🂡\"<>&"},
	} {
		require.NoError(t, in.Validate())
	}
	for _, c := range []struct {
		field string
		in    tile.Intent
	}{
		{"tile", tile.Intent{ActionID: "\xff", Actor: "\xff", Body: make([]byte, tile.MaxIntentBody+1)}},
		{"action ID", tile.Intent{Tile: 1, ActionID: "\xff", Actor: "\xff"}},
		{"action ID", tile.Intent{Tile: 1, ActionID: long + "x"}},
		{"action ID", tile.Intent{Tile: 1, ActionID: "a\nb"}},
		{"action ID", tile.Intent{Tile: 1, ActionID: "\ufffd"}},
		{"actor", tile.Intent{Tile: 1, Actor: "a\xc3"}},
		{"actor", tile.Intent{Tile: 1, Actor: "\x7f"}},
		{"actor", tile.Intent{Tile: 1, Actor: "ann\u202egnp"}},
		{"action ID", tile.Intent{Tile: 1, ActionID: "a\u200bb"}},
		{"body", tile.Intent{Tile: 1, Body: make([]byte, tile.MaxIntentBody+1)}},
	} {
		var bad *fence.ArgumentError
		require.ErrorAs(t, c.in.Validate(), &bad)
		require.Equal(t, c.field, bad.Field)
	}
	require.Error(t, tile.ValidateName("actor", ""))
}

// With defaults, at any tick rate, an action that a gateway retries within its window is applied once.
func TestActionIsAppliedOnceForTheWholeRetryWindow(t *testing.T) {
	for _, interval := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			p := w.start("a:1", tile.Config{TickInterval: interval})
			p.say(t, "act", "paid")
			time.Sleep(tile.DefaultRetryWindow)
			assert.Equal(t, stream.Applied, p.say(t, "act", "paid"))
			require.NoError(t, p.drain())
			assert.Equal(t, []string{"paid"}, w.history(), "ticks of %s", interval)
		})
	}
}

// TestAnActionOlderThanTheMemoryIsNotDecidedAgain: however often it comes, and whatever the clock of the ledger was,
// up to the slack between memory and window. One that is remembered is answered whatever its age.
func TestAnActionOlderThanTheMemoryIsNotDecidedAgain(t *testing.T) {
	const slack = 5 * time.Minute // of the defaults
	for _, ahead := range []time.Duration{0, slack - time.Second, -2 * time.Minute, slack + time.Second,
		-slack - time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			p := w.start("a:1", tile.Config{})
			in := tile.Intent{Tile: testTile, ActionID: "act", Body: []byte("paid"), Admitted: time.Now().Add(ahead)}
			_, err := p.Submit(t.Context(), in)
			want := []string{"paid"}
			if ahead > slack || ahead < -slack {
				require.ErrorIs(t, err, fence.ErrInvalidArgument)
				want = nil
			} else {
				require.NoError(t, err)
			}
			for range 40 { // for twenty minutes
				time.Sleep(30 * time.Second)
				if _, err := p.Submit(t.Context(), in); err != nil {
					require.ErrorIs(t, err, fence.ErrInvalidArgument)
				} else if want == nil {
					want = []string{"paid"} // its clock was ahead, and its time has come
				}
			}
			require.NoError(t, p.drain())
			assert.Equal(t, want, w.history(), "ledger's clock ahead by %s", ahead)
		})
	}
}

func TestMemoryShorterThanTheRetryWindowIsRefused(t *testing.T) {
	make := func(cfg tile.Config) error {
		w := newWorld(t)
		_, err := tile.New(testTile, "a:1", w.seams(),
			&ledgerRules{}, &cfg)
		return err
	}
	var argument *fence.ArgumentError
	require.ErrorAs(t, make(tile.Config{Limits: tile.Limits{RememberFor: 5 * time.Minute}}), &argument)
	assert.Equal(t, "RememberFor", argument.Field)
	require.ErrorAs(t, make(tile.Config{Limits: tile.Limits{RetryWindow: 10 * time.Minute}}), &argument)
	assert.Equal(t, "RememberFor", argument.Field)
	assert.NoError(t, make(tile.Config{Limits: tile.Limits{RememberFor: time.Minute, RetryWindow: 30 * time.Second}}))
}

// large is a game whose state takes a given number of bytes, and whose actions change nothing.
type large struct{ size int }

func (l *large) Restore([]byte) error             { return nil }
func (l *large) Apply(fence.Tick, [][]byte) error { return nil }
func (l *large) Snapshot() ([]byte, error)        { return bytes.Repeat([]byte{'x'}, l.size), nil }
func (l *large) Resolve(_ fence.Tick, in []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for range in {
		outcomes = append(outcomes, stream.Applied)
	}
	return nil, outcomes
}

func (w *world) startLarge(t *testing.T, size int, cfg tile.Config) *tile.TileProcessor {
	t.Helper()
	p, err := tile.New(testTile, "a:1", w.seams(), &large{size},
		&cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return p
}

// New actions are refused before the remembered ones and the game's state are too large for a snapshot. Every outcome
// that was given is remembered for as long as promised; after that there is room again.
func TestRememberedActionsLeaveRoomForTheSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex // guards what follows
		var snapshots []tile.SnapshotInfo
		done, refused := []string{}, 0
		p := w.startLarge(t, fence.MaxSnapshot-fence.MaxPayload-50_000, tile.Config{SnapshotEvery: 200,
			Hooks: tile.Hooks{Snapshotted: func(i tile.SnapshotInfo) {
				mu.Lock()
				defer mu.Unlock()
				snapshots = append(snapshots, i)
			}}})
		saved := func() []tile.SnapshotInfo {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(snapshots)
		}
		act := func(id string) error {
			_, err := p.Submit(t.Context(), tile.Intent{Tile: testTile, ActionID: id})
			return err
		}
		require.NoError(t, act("first"))
		time.Sleep(101 * time.Second)
		require.NotEmpty(t, saved(), "it knows by now what the game's state takes")
		var all sync.WaitGroup
		for i := range 1500 {
			all.Go(func() {
				id := fmt.Sprintf("%064d", i)
				err := act(id)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					done = append(done, id)
					return
				}
				refused++
				assert.ErrorIs(t, err, tile.ErrOverloaded)
			})
		}
		all.Wait()
		assert.Greater(t, len(done), 500)
		assert.Greater(t, refused, 500)
		_, err := p.Submit(t.Context(), tile.Intent{Tile: testTile})
		require.NoError(t, err, "movement is not remembered, and goes on")
		time.Sleep(5 * time.Minute)
		for _, id := range done {
			require.NoError(t, act(id), "what was decided is answered")
		}
		time.Sleep(5 * time.Minute)
		require.NoError(t, act("later"))
		for _, s := range saved() {
			require.NoError(t, s.Err)
		}
	})
}

// A tile whose remembered actions do not fit into a snapshot, as one from before they were bounded: its stream is full,
// so it commits nothing. Its memory expires all the same, a snapshot fits again, and it goes on.
func TestTileThatRemembersTooMuchRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		at := fence.Position{}
		install := true
		for tick := fence.Tick(1); tick <= 10; tick++ {
			b := stream.Batch{}
			if tick <= 2 { // together they take more than the game's state leaves of a snapshot
				for i := range 10_000 {
					b.Resolutions = append(b.Resolutions, stream.Resolution{
						ActionID: fmt.Sprintf("%064d", int(tick)*10_000+i), Outcome: stream.Applied})
				}
			} else {
				b.Events = slices.Repeat([][]byte{make([]byte, 65_000)}, 15)
			}
			payload, private, err := b.Encode()
			require.NoError(t, err)
			r, err := w.store.Commit(t.Context(),
				fence.Commit{Tile: testTile, Epoch: 1, Contact: "old:1", Prev: at, Tick: tick, Payload: payload,
					Private: private, Install: install})
			require.NoError(t, err)
			at, install = r.Position, false
		}
		_, err := w.authority.Claim(t.Context(), fence.Claim{Tile: testTile, Contact: "old:1", ID: fence.NewClaimID()})
		require.NoError(t, err)
		p := w.startLarge(t, fence.MaxSnapshot-fence.MaxPayload-50_000, tile.Config{TakeOver: true,
			TickInterval: 30 * time.Second, Limits: tile.Limits{MaxStreamBytes: 8 << 20}})
		time.Sleep(2 * time.Minute)
		require.True(t, p.Status().StreamFull)
		known, err := p.Submit(t.Context(), tile.Intent{Tile: testTile, ActionID: fmt.Sprintf("%064d", 10_000)})
		require.NoError(t, err, "what it remembers it answers")
		require.Equal(t, stream.Applied, known.Outcome)
		_, err = p.Submit(t.Context(), tile.Intent{Tile: testTile, ActionID: "new"})
		require.ErrorIs(t, err, tile.ErrOverloaded, "new ones it refuses")
		time.Sleep(11 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = p.Submit(ctx, tile.Intent{Tile: testTile, ActionID: "new"})
		require.NoError(t, err)
		require.False(t, p.Status().StreamFull)
		_, saved, err := w.log.Snapshot(t.Context(), testTile)
		require.NoError(t, err)
		require.True(t, saved)
	})
}

// TestARepeatedActionIsNotDecidedLate: it waits behind its first submission at a tile whose rules fail, until it is too
// old for any tile to decide, and its price may have been given back.
func TestARepeatedActionIsNotDecidedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rules := &brittle{}
		f := w.fragile("a:1", tile.Config{}, rules)
		f.say(t, "first", "first")
		rules.set(func() { rules.resolve = panicsAt() })
		in := tile.Intent{Tile: testTile, ActionID: "paid", Body: []byte("paid"), Admitted: time.Now()}
		answers := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := f.Submit(context.Background(), in)
				answers <- err
			}()
			time.Sleep(5 * time.Second)
		}
		time.Sleep(7 * time.Minute)
		rules.set(func() { rules.resolve = nil })
		for range 2 {
			require.Error(t, <-answers)
		}
		require.NoError(t, f.drain())
		assert.Equal(t, []string{"first"}, w.history())
	})
}
