package tilehost_test

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// brittle is a ledger that panics at the word poison while its game is broken: before the event is decided, or when it
// is folded.
type brittle struct {
	ledgerRules
	game *brokenGame
}

type brokenGame struct{ resolve, apply, make atomic.Bool }

func (g *brokenGame) rules(fence.TileID) (tile.Rules, error) {
	if g.make.Load() {
		panic("no such tile")
	}
	return &brittle{game: g}, nil
}

func (b *brittle) Resolve(tick fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	for _, in := range intents {
		if b.game.resolve.Load() && string(in.Body) == "poison" {
			panic("no rule for it")
		}
	}
	return b.ledgerRules.Resolve(tick, intents)
}

func (b *brittle) Apply(tick fence.Tick, events [][]byte) error {
	poison := func(e []byte) bool { return bytes.Equal(e, []byte("poison")) }
	if b.game.apply.Load() && slices.ContainsFunc(events, poison) {
		panic("no rule for it")
	}
	return b.ledgerRules.Apply(tick, events)
}

// TestAGamesBugIsOneTilesBug: three hosts follow each other's tiles. An action that panics, presented again and again
// to each owner of its tile, ends no host, no other tile, and not even its own. An event that cannot be folded stops
// its tile, on all hosts, until the game is repaired and the quarantine released; they all say why.
func TestAGamesBugIsOneTilesBug(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		game := &brokenGame{}
		game.resolve.Store(true)
		ids := tiles(2)
		sick, well := ids[0], ids[1]
		var hosts []*runningHost
		for _, contact := range []string{"a:1", "b:1", "c:1"} {
			h := &runningHost{contact: contact, done: make(chan struct{})}
			var err error
			h.Host, err = tilehost.New(contact, w.seams(), game.rules, &tilehost.Config{Refollow: true, Restart: true,
				Hooks: tilehost.Hooks{Ended: func(i tilehost.EndInfo) {
					h.note(func() { h.ended = append(h.ended, i) })
				}}})
			require.NoError(t, err)
			h.run(t)
			hosts = append(hosts, h)
		}
		a := hosts[0]
		require.NoError(t, a.Own(ids...))
		require.NoError(t, a.Await(t.Context(), ids...))
		for _, h := range hosts[1:] {
			require.NoError(t, h.Follow(ids...))
		}
		poison := tile.Intent{Tile: sick, ActionID: "x", Body: []byte("poison")}
		for range 10 {
			o, err := a.Submit(t.Context(), poison)
			require.NoError(t, err)
			require.Equal(t, stream.Rejected, o.Outcome)
		}
		a.say(t, sick, "water")
		time.Sleep(2 * time.Second)

		game.resolve.Store(false)
		game.apply.Store(true)
		poison.ActionID = "y"
		_, err := a.Submit(t.Context(), poison)
		require.ErrorIs(t, err, tile.ErrUnresolved)
		for range 60 {
			time.Sleep(time.Second)
			a.say(t, well, "fine")
		}
		for _, h := range hosts {
			s, ok := h.TileStatus(sick)
			require.True(t, ok, "%s has a part in it", h.contact)
			assert.NotEqual(t, tile.Serving, s.State)
		}
		quarantined, ok := a.TileStatus(sick)
		require.True(t, ok)
		require.NotNil(t, quarantined.Quarantine)
		assert.Equal(t, "a:1", quarantined.Quarantine.Quarantine.By)
		_, err = a.Submit(t.Context(), poison)
		require.ErrorIs(t, err, tile.ErrQuarantined)
		require.ErrorIs(t, a.Await(t.Context(), sick), tile.ErrQuarantined)
		g, err := w.authority.Lookup(t.Context(), sick)
		require.NoError(t, err)
		assert.Equal(t, quarantined.Quarantine.Epoch, g.Epoch, "no host takes it any more")
		ends := a.ends()
		require.NotEmpty(t, ends)
		assert.Less(t, len(ends), 20, "it is not tried in a hurry")
		assert.ErrorIs(t, ends[0].Err, tile.ErrRules)
		assert.Equal(t, tilehost.StepRestart, ends[0].Next)

		game.apply.Store(false)
		require.NoError(t, w.authority.Release(t.Context(), g))
		waittest.Until(t, func() bool {
			return slices.ContainsFunc(hosts, func(h *runningHost) bool {
				s, _ := h.TileStatus(sick)
				return s.State == tile.Serving
			})
		}, 2*time.Minute, time.Second)
		assert.Equal(t, []string{"water", "poison"}, wordsOf(t, w.log, sick))
		for _, h := range hosts {
			h.end(t)
		}
	})
}

// TestAConstructorThatPanics: is one that returns an error.
func TestAConstructorThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		game := &brokenGame{}
		game.make.Store(true)
		h := &runningHost{contact: "a:1", done: make(chan struct{})}
		var err error
		h.Host, err = tilehost.New(h.contact, w.seams(), game.rules, nil)
		require.NoError(t, err)
		h.run(t)
		require.NoError(t, h.Own(testTile))
		require.ErrorIs(t, h.Await(t.Context(), testTile), tile.ErrRules)
		h.end(t)
	})
}
