package game_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// battle is a tile full of bots, each of which sees only the view.
type battle struct {
	rules *game.Rules
	view  *game.View
	bots  []*game.Bot
	tick  fence.Tick
	kinds map[game.EventKind]int
	cards int // played
	hits  int // cards that were applied
}

func newBattle(t testing.TB, ground game.Ground, bots int, seed uint64) *battle {
	b := &battle{kinds: map[game.EventKind]int{}}
	var err error
	b.rules, err = game.NewRules(ground)
	require.NoError(t, err)
	b.view, err = game.NewView(ground.Len())
	require.NoError(t, err)
	for i := range bots {
		b.bots = append(b.bots, game.NewBot(fmt.Sprintf("bot-%03d", i), ground, seed, nil))
	}
	return b
}

// play runs one tick and returns its frame, which is no less than what a relay sends of it.
func (b *battle) play(t testing.TB) []byte {
	b.tick++
	var intents []tile.Intent
	for i, bot := range b.bots {
		if o, ok := bot.Decide(b.view, b.tick); ok {
			in := tile.Intent{Tile: 1, Actor: fmt.Sprintf("bot-%03d", i), Body: o.Encode()}
			if o.Kind.Card() {
				b.cards++
				in.ActionID = fmt.Sprintf("%026d", b.cards) // as long as a ULID
			}
			intents = append(intents, in)
		}
	}
	events, outcomes := b.rules.Resolve(b.tick, intents)
	batch := stream.Batch{Events: events}
	for i, in := range intents {
		if in.ActionID != "" {
			batch.Resolutions = append(batch.Resolutions, stream.Resolution{ActionID: in.ActionID,
				Outcome: outcomes[i]})
			if outcomes[i] == stream.Applied {
				b.hits++
			}
		}
	}
	payload, private, err := batch.Encode()
	require.NoError(t, err)
	require.NoError(t, b.rules.Apply(b.tick, events))
	for _, p := range events {
		b.kinds[game.EventKind(p[0])]++
	}
	e := fence.NewEntry(fence.Entry{Tile: 0x85283083fffffff, Kind: fence.KindBatch, Tick: b.tick,
		At:       time.UnixMilli(1 << 40),
		Position: fence.Position{Epoch: 3, Seq: fence.Seq(b.tick) + 1}, Prev: fence.Position{Epoch: 3,
			Seq: fence.Seq(b.tick), Chain: 1 << 60},
		Payload: payload, Private: private})
	require.NoError(t, b.view.Apply(&e))
	return e.Frame
}

// TestBattleStaysWithinItsBytes holds a typical battle, 60 ships of which a third move in a tick, to the
// budget of about 600 bytes per client per tick, frame header and card outcomes included.
func TestBattleStaysWithinItsBytes(t *testing.T) {
	b := newBattle(t, realGround(t), 60, 1)
	for range 10 {
		b.play(t)
	}
	const ticks = 300
	clear(b.kinds)
	b.cards, b.hits = 0, 0
	total, most := 0, 0
	for range ticks {
		n := len(b.play(t))
		total += n
		most = max(most, n)
	}
	require.Equal(t, b.rules.Digest(), b.view.Digest())
	t.Logf("bytes a tick: mean %d, most %d; a tick has %.1f moves, %.1f volleys, %.2f shields, %.2f warps, "+
		"%.2f returns",
		total/ticks, most, b.perTick(game.Moved, ticks), b.perTick(game.Fired, ticks), b.perTick(game.Shielded, ticks),
		b.perTick(game.Warped, ticks), b.perTick(game.Returned, ticks))
	assert.Less(t, total/ticks, 600)
	assert.InDelta(t, 20, b.perTick(game.Moved, ticks), 8, "about a third moves")
	assert.Greater(t, b.perTick(game.Fired, ticks), 0.5, "ships meet")
	assert.Positive(t, b.kinds[game.Returned], "ships are lost and return")
	assert.Positive(t, b.kinds[game.Warped])
	assert.Greater(t, float64(b.hits), 0.7*float64(b.cards), "bots seldom waste a card")
}

func (b *battle) perTick(k game.EventKind, ticks int) float64 {
	return float64(b.kinds[k]) / float64(ticks)
}

func TestBotsRepeatThemselves(t *testing.T) {
	ground := newDisk(6)
	run := func(seed uint64) game.Digest {
		b := newBattle(t, ground, 20, seed)
		for range 100 {
			b.play(t)
		}
		return b.rules.Digest()
	}
	assert.Equal(t, run(5), run(5))
	assert.NotEqual(t, run(5), run(6))
}

func TestBotKeepsToHandAndCooldown(t *testing.T) {
	ground := newDisk(4)
	view, err := game.NewView(ground.Len())
	require.NoError(t, err)
	for i, cell := range []uint16{30, 31} {
		e := game.Event{Kind: game.Spawned, Ship: uint32(i + 1), Cell: cell, Hull: game.MaxHull,
			Owner: fmt.Sprint("bot", i)}
		payload, _, err := (&stream.Batch{Events: [][]byte{e.Append(nil)}}).Encode()
		require.NoError(t, err)
		require.NoError(t, view.Apply(&fence.Entry{Tick: 1, Payload: payload}))
	}
	bot := game.NewBot("bot0", ground, 1, &game.BotConfig{CardChance: 1, Hand: 2, Cooldown: 3, DrawEvery: 10})
	var played []fence.Tick
	for tick := fence.Tick(1); tick <= 25; tick++ {
		if o, ok := bot.Decide(view, tick); ok && o.Kind.Card() {
			assert.Equal(t, game.Order{Kind: game.Volley, Target: 2}, o)
			played = append(played, tick)
		}
	}
	assert.Equal(t, []fence.Tick{1, 4, 11, 21}, played, "two in the hand, three ticks apart, then one each ten")
}
