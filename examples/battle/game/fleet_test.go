package game_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/region"
	"github.com/tilefence/tilefence/tile/tiletest"
	"github.com/tilefence/tilefence/tile/warp"
)

const north, south fence.TileID = 0x85283083fffffff, 0x85283087fffffff

// straits makes the rules of two tiles, of which each cell touches the one of the same number across the border.
func straits(id fence.TileID) (tile.Rules, error) {
	d := newDisk(2)
	d.id, d.others, d.across = id, []fence.TileID{north + south - id}, map[int][]region.Place{}
	for cell := range d.Len() {
		d.across[cell] = []region.Place{{Tile: d.others[0], Cell: cell}}
	}
	rules, err := game.NewRules(d)
	return port{rules, d}, err
}

// port is rules and their ground.
type port struct {
	*game.Rules
	ground *disk
}

func shipName(i int, home fence.TileID) string { return fmt.Sprintf("captain-%d@%s", i, home) }

// TestFleetsCross: ships sail and warp between two tiles whose owners are killed, and whose messages are lost.
func TestFleetsCross(t *testing.T) {
	latest := map[fence.TileID]port{} // of the hosts that are started last, and live in the end
	var mu sync.Mutex
	newRules := func(id fence.TileID) (tile.Rules, error) {
		rules, err := straits(id)
		mu.Lock()
		defer mu.Unlock()
		latest[id], _ = rules.(port)
		return rules, err
	}
	tiletest.Cross(t, newRules, func(r *rand.Rand) tile.Intent {
		// Captains of even numbers have ships of the north, others of the south.
		n, here, there := r.IntN(10), north, south
		if n%2 == 1 {
			here, there = south, north
		}
		in := tile.Intent{Tile: here, Actor: fmt.Sprint("captain-", n)}
		o := game.Order{Kind: game.Spawn, Cell: uint16(r.IntN(19)), Tile: there}
		if r.IntN(3) > 0 {
			if r.IntN(2) == 0 {
				in.Tile, o.Tile = there, here
			}
			o.Kind = game.Sail
			if r.IntN(2) == 0 {
				o.Kind = game.Fleet
				for range r.IntN(3) {
					m := r.IntN(10)
					o.Fleet = append(o.Fleet, game.Member{Tile: in.Tile, Name: shipName(m, []fence.TileID{north,
						south}[m%2])})
				}
			}
		}
		in.Body = o.Encode()
		return in
	}, func(rules tile.Rules) (names []string) {
		snapshot, _ := rules.Snapshot()
		v, _ := game.NewView(rules.(port).ground)
		_ = v.Restore(snapshot, everything)
		for _, s := range v.Ships() {
			names = append(names, s.Name())
		}
		return names
	}, &tiletest.Config{Tiles: []fence.TileID{north, south}, Ends: func(entity string) bool {
		return strings.HasPrefix(entity, warp.Prefix)
	}})
	c := game.Census{}
	for _, p := range latest {
		snapshot, err := p.Snapshot()
		require.NoError(t, err)
		v, err := game.NewView(p.ground)
		require.NoError(t, err)
		require.NoError(t, v.Restore(snapshot, everything))
		c.Add(v)
	}
	gone, off, whole := c.Fleets()
	t.Log(gone, "fleets have gone,", off, "were called off;", c.Afloat, "ships")
	assert.Positive(t, gone)
	assert.Positive(t, off)
	assert.True(t, whole)
}

func fleet(actor string, to fence.TileID, ships ...game.Member) tile.Intent {
	return order(actor, game.Order{Kind: game.Fleet, Tile: to, Fleet: ships})
}

// TestAFleetGoesWholeOrStays: of ada's tile and of bob's, to ada's neighbour.
func TestAFleetGoesWholeOrStays(t *testing.T) {
	s := newStrait(t, 2)
	s.tick(0, 0, order("ada", game.Order{Kind: game.Spawn}))
	s.tick(1, 0, order("bob", game.Order{Kind: game.Spawn}), order("cy", game.Order{Kind: game.Spawn}))
	bob := game.Member{Tile: 2, Name: "bob@2"}
	play := func(intents ...tile.Intent) (out []stream.Outcome) {
		out = s.tick(0, 9, intents...)
		for range 6 {
			s.tick(1, 9)
			s.tick(0, 9)
		}
		return out
	}
	fleets := func() []any {
		c, underWay := s.census()
		gone, off, whole := c.Fleets()
		lost, doubled := c.Wrong()
		assert.Empty(t, append(lost, doubled...))
		return []any{gone, off, whole, underWay}
	}
	cy := game.Member{Tile: 1, Name: "cy@2"}
	s.tick(1, 0, sail("cy", 1, s.coasts[1].ship("cy").Cell))
	assert.Equal(t, []stream.Outcome{stream.Applied}, play(fleet("ada", 2, cy)))
	assert.Equal(t, []any{uint64(1), uint64(0), true, 0}, fleets())
	assert.EqualValues(t, 1, s.coasts[1].ship("ada").Hop)
	assert.EqualValues(t, 2, s.coasts[1].ship("cy").Hop)

	assert.Equal(t, []stream.Outcome{stream.Applied}, s.tick(1, 9, fleet("ada", 1, game.Member{Tile: 2, Name: "cy@2"})))
	assert.Equal(t, []stream.Outcome{stream.Fizzled}, s.tick(1, 9, fleet("cy", 1, bob)), "cy waits already")
	play()
	assert.Equal(t, []stream.Outcome{stream.Applied}, s.tick(1, 9, fleet("bob", 1)), "the flagship may go at once")
	assert.Equal(t, []stream.Outcome{stream.Fizzled}, s.tick(1, 9, order("bob", game.Order{Kind: game.Shield})),
		"what waits does nothing else")
	play()
	assert.Equal(t, []any{uint64(3), uint64(0), true, 0}, fleets())
	assert.Equal(t, []stream.Outcome{stream.Fizzled}, play(fleet("ada", 2, game.Member{Tile: 1, Name: "zoe@1"})))
	assert.Equal(t, []any{uint64(3), uint64(1), true, 0}, fleets())
	assert.EqualValues(t, 2, s.coasts[0].ship("ada").Hop, "it has stayed")
	assert.Equal(t, []stream.Outcome{stream.Rejected}, play(fleet("ada", 9)), "no such tile")
	assert.Equal(t, []stream.Outcome{stream.Rejected}, play(fleet("ada", 2, cy, cy)))

	// What is in the office is in snapshots, and not in what clients watch of areas.
	snapshot, err := s.coasts[0].rules.Snapshot()
	require.NoError(t, err)
	assert.Contains(t, hex.EncodeToString(snapshot), hex.EncodeToString([]byte(`"tally"`)))
	some, err := game.NewView(s.coasts[0].ground)
	require.NoError(t, err)
	require.NoError(t, some.Restore(snapshot, fence.Areas(1, 2, 3)))
	assert.Equal(t, s.coasts[0].rules.Digest(), some.Digest())
}

// TestAFleetNeedsRoom: of a tile that is full but for one cell, which a fleet of two wants.
func TestAFleetNeedsRoom(t *testing.T) {
	s := newStrait(t, 1)
	s.tick(0, 0, order("ada", game.Order{Kind: game.Spawn}), order("bob", game.Order{Kind: game.Spawn, Cell: 1}))
	for i := range s.coasts[1].ground.Len() - 1 {
		s.tick(1, 0, order(fmt.Sprint("local-", i), game.Order{Kind: game.Spawn}))
	}
	// bob's ship comes along once it has left a tile: here it sails, and is back.
	s.tick(0, 0, sail("bob", 2, s.coasts[0].ship("bob").Cell))
	s.tick(1, 9)
	s.tick(1, 9, sail("bob", 1, s.coasts[1].ship("bob").Cell))
	s.tick(0, 9)
	require.EqualValues(t, 2, s.coasts[0].ship("bob").Hop)
	s.tick(0, 9, fleet("ada", 2, game.Member{Tile: 1, Name: "bob@1"}))
	for range 6 {
		s.tick(1, 9)
		s.tick(0, 9)
	}
	c, underWay := s.census()
	gone, off, whole := c.Fleets()
	assert.Equal(t, []any{uint64(0), uint64(1), true, 0}, []any{gone, off, whole, underWay})
	assert.EqualValues(t, 2, s.coasts[0].ship("bob").Hop, "both have stayed")
}
