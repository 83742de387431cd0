package game_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// battle is a tile full of bots, each of which sees only its viewport.
type battle struct {
	rules   *game.Rules
	players []*player
	tick    fence.Tick
	kinds   map[game.EventKind]int
	warps   int // cards that were applied
	cards   int // played
	hits    int // cards that were applied

	whole, seen int // bytes of the frames so far: of the whole tile, and of all viewports
}

type player struct {
	*game.Bot
	name  string
	view  *game.View
	areas fence.AreaSet // that it watches
}

func newBattle(t testing.TB, ground game.Ground, bots int, seed uint64) *battle {
	b := &battle{kinds: map[game.EventKind]int{}}
	var err error
	b.rules, err = game.NewRules(ground)
	require.NoError(t, err)
	for i := range bots {
		p := &player{name: fmt.Sprintf("bot-%03d", i)}
		p.Bot = game.NewBot(p.name, ground, seed, nil)
		p.view, err = game.NewView(ground)
		require.NoError(t, err)
		b.players = append(b.players, p)
	}
	return b
}

// look makes the player watch what it wants to see now.
func (p *player) look(t testing.TB, rules *game.Rules) {
	areas := fence.Areas(p.Viewport(p.view)...)
	if areas == p.areas {
		return
	}
	snapshot, err := rules.Snapshot()
	require.NoError(t, err)
	if fresh, some := areas.Without(p.areas); some && !p.areas.All() {
		p.view.Keep(areas)
		require.NoError(t, p.view.Open(snapshot, fresh))
	} else {
		require.NoError(t, p.view.Restore(snapshot, areas))
	}
	p.areas = areas
}

// play runs one tick.
func (b *battle) play(t testing.TB) {
	b.tick++
	var intents []tile.Intent
	for _, p := range b.players {
		p.look(t, b.rules)
		o, ok := p.Decide(p.view, b.tick)
		if !ok {
			continue
		}
		in := tile.Intent{Tile: 1, Actor: p.name, Body: o.Encode()}
		if o.Kind.Card() {
			b.cards++
			in.ActionID = fmt.Sprintf("%026d", b.cards) // as long as a ULID
		}
		intents = append(intents, in)
	}
	events, outcomes := b.rules.Resolve(b.tick, intents)
	for i, in := range intents {
		if in.ActionID != "" && outcomes[i] == stream.Applied {
			b.hits++
			if game.OrderKind(in.Body[1]) == game.Warp {
				b.warps++
			}
		}
	}
	batch := stream.Batch{Events: events}
	batch.Divide(b.rules.Area)
	payload, _, err := batch.Encode()
	require.NoError(t, err)
	require.NoError(t, b.rules.Apply(b.tick, batch.Events))
	for _, p := range events {
		b.kinds[game.EventKind(p[0])]++
	}
	b.show(t, fence.NewEntry(fence.Entry{Tile: 0x85283083fffffff, Kind: fence.KindBatch, Tick: b.tick,
		At:       time.UnixMilli(1 << 40),
		Position: fence.Position{Epoch: 3, Seq: fence.Seq(b.tick) + 1},
		Prev:     fence.Position{Epoch: 3, Seq: fence.Seq(b.tick), Chain: 1 << 60},
		Payload:  payload}))
}

// show sends an entry to all players, as a relay does.
func (b *battle) show(t testing.TB, e fence.Entry) {
	b.whole += size(e)
	for _, p := range b.players {
		sent := e.Watched(p.areas)
		b.seen += size(sent)
		require.NoError(t, p.view.Apply(&sent))
	}
}

// size is that of the message that carries an entry to a client.
func size(e fence.Entry) int {
	return proto.Size(&relaypb.ServerMessage{Tile: e.Tile.String(),
		Body: &relaypb.ServerMessage_Frame{Frame: relaypb.FromEntry(&e)}})
}

// converged holds what each player sees to what the owner has.
func (b *battle) converged(t testing.TB) {
	t.Helper()
	owner := b.rules.Digests()
	for _, p := range b.players {
		for a, seen := range p.view.Digests() {
			require.Equal(t, owner[a], seen, "%s sees area %d", p.name, a)
		}
	}
}

// TestBattleStaysWithinItsBytes holds what a client is sent in a tick to the budget of about 600 bytes: of a typical
// battle, 60 ships of which a third move, even the whole tile; of one that is six times as large, the viewport.
func TestBattleStaysWithinItsBytes(t *testing.T) {
	const budget, ticks = 600, 100
	for _, c := range []struct {
		ships, most int // bytes a tick of the whole tile
	}{{60, budget}, {360, 5 * budget}} {
		t.Run(fmt.Sprint("ships=", c.ships), func(t *testing.T) {
			b := newBattle(t, realGround(t), c.ships, 1)
			for range 10 {
				b.play(t)
			}
			clear(b.kinds)
			b.cards, b.hits, b.whole, b.seen, b.warps = 0, 0, 0, 0, 0
			for range ticks {
				b.play(t)
			}
			b.converged(t)
			whole, seen := b.whole/ticks, b.seen/ticks/c.ships
			t.Logf("bytes a tick: the tile %d, a viewport %d; a tick has %.1f moves, %.1f changes of area, "+
				"%.1f volleys, %.2f shields, %.2f warps, %.2f returns", whole, seen, b.perTick(game.Moved, ticks),
				b.perTick(game.Entered, ticks), b.perTick(game.Fired, ticks), b.perTick(game.Shielded, ticks),
				float64(b.warps)/ticks, b.perTick(game.Returned, ticks))
			assert.Less(t, whole, c.most)
			assert.Less(t, seen, budget)
			assert.Less(t, seen-100, whole/3, "the header apart")
			moves := b.perTick(game.Moved, ticks) + b.perTick(game.Entered, ticks)
			assert.InDelta(t, 1.0/3, moves/float64(c.ships), 0.12, "about a third moves")
			assert.Greater(t, b.perTick(game.Fired, ticks), 0.5, "ships meet")
			assert.Positive(t, b.kinds[game.Returned], "ships are lost and return")
			assert.Positive(t, b.warps)
			assert.Greater(t, float64(b.hits), 0.7*float64(b.cards), "bots seldom waste a card")
		})
	}
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

// TestBotLooksForItsShip: a bot that has a ship where it does not look, from an earlier life, finds it.
func TestBotLooksForItsShip(t *testing.T) {
	ground := realGround(t)
	b := newBattle(t, ground, 1, 1)
	p := b.players[0]
	b.play(t)
	b.play(t)
	require.Len(t, p.Viewport(p.view), 1+len(ground.Around(ground.Area(int(p.view.Ships()[0].Cell)))))
	cell := uint16(0)
	for near := append(p.Viewport(p.view), 0); contains(near, ground.Area(int(cell))); cell++ {
	}
	other := newBattle(t, ground, 1, 1)
	first := order(p.name, game.Order{Kind: game.Spawn, Cell: cell})
	events, outcomes := other.rules.Resolve(1, []tile.Intent{first})
	require.Equal(t, []stream.Outcome{stream.Applied}, outcomes)
	require.NoError(t, other.rules.Apply(1, events))
	other.tick = 1
	q := other.players[0]
	for range 30 {
		other.play(t)
	}
	_, found := q.view.ShipOf(q.name)
	assert.True(t, found)
	assert.NotEmpty(t, q.Viewport(q.view), "it sees a part of the tile again")
}

func contains(areas []fence.Area, a fence.Area) bool {
	for _, b := range areas {
		if a == b {
			return true
		}
	}
	return false
}

func TestBotKeepsToHandAndCooldown(t *testing.T) {
	ground := newDisk(4)
	view, err := game.NewView(ground)
	require.NoError(t, err)
	for i, cell := range []uint16{30, 31} {
		e := game.Event{Kind: game.Spawned, Ship: uint32(i + 1), Cell: cell, Hull: game.MaxHull,
			Owner: fmt.Sprint("bot", i)}
		payload, _, err := (&stream.Batch{Events: [][]byte{e.Append(nil)}}).Encode()
		require.NoError(t, err)
		require.NoError(t, view.Apply(&fence.Entry{Tick: 1, Payload: payload}))
	}
	played := func(cfg game.BotConfig) (ticks []fence.Tick) {
		bot := game.NewBot("bot0", ground, 1, &cfg)
		for tick := fence.Tick(1); tick <= 25; tick++ {
			if o, ok := bot.Decide(view, tick); ok && o.Kind.Card() {
				assert.Equal(t, game.Order{Kind: game.Volley, Target: 2}, o)
				ticks = append(ticks, tick)
			}
		}
		return ticks
	}
	cfg := game.BotConfig{CardChance: 1, Hand: 2, Cooldown: 3, DrawEvery: 10}
	assert.Equal(t, []fence.Tick{1, 4, 11, 21}, played(cfg), "two in the hand, three ticks apart, then one each ten")
	cfg.FirstDraw = 5
	assert.Equal(t, []fence.Tick{5, 15, 25}, played(cfg), "none in the hand, the first at five")
}
