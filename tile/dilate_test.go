package tile_test

import (
	"fmt"
	"slices"
	"strings"
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

// sluggish is a ledger whose ticks take a while, and which writes down what pace it was told, and when in ticks.
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
// enough; clients are told, no follower takes the tile, no intent is lost, and the usual pace returns by itself.
func TestTimeIsDilated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		seams := tile.Seams{Authority: w.authority, Store: w.store, Log: w.log}
		limits := tile.Limits{MaxDilation: 8}
		rules := &sluggish{}
		p, err := tile.New(testTile, "a:1", seams, rules, &tile.Config{Limits: limits})
		require.NoError(t, err)
		owner := w.launch(p, nil)
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
			p, err := tile.New(testTile, "a:1", tile.Seams{Authority: w.authority, Store: w.store, Log: w.log}, rules,
				&tile.Config{Limits: tile.Limits{MaxDilation: most}})
			require.NoError(t, err)
			owner := w.launch(p, nil)
			time.Sleep(time.Minute)
			s := owner.Status()
			assert.InDelta(t, want, s.Dilation, 0)
			assert.Positive(t, s.Missed)
			assert.Equal(t, most > 0, len(paces(w.history())) > 0)
			require.NoError(t, owner.drain())
		})
	}
}
