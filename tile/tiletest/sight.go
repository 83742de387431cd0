package tiletest

import (
	"fmt"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// inRim is what to look for where Play changes what it sees.
const inRim = "a map or slice of Rim.View that Play writes to, sorts or deletes from: decide on a copy"

// unseen is Inputs.Rim of a tile that sees nothing.
func unseen(fence.TileID) tile.Rim { return tile.Rim{} }

// rims are what the rules of a tile see of the others at a tick: each as it is, fresh or not, or nothing.
func (b *border) rims(g *game) (func(fence.TileID) tile.Rim, error) {
	b.seen = map[fence.TileID]tile.Rim{}
	rules, ok := g.owner.(tile.Sighted)
	if !ok {
		return unseen, nil
	}
	for _, s := range rules.Sights() {
		n := slices.IndexFunc(b.games, func(other *game) bool { return other.Tile == s.Tile && other != g })
		if n < 0 || b.r.IntN(4) == 0 {
			continue
		}
		other := b.games[n]
		state, err := other.snapshot(other.owner)
		if err != nil {
			return nil, err
		}
		if _, divided := other.owner.(tile.Divided); divided {
			state, _ = fence.SelectParts(state, s.Areas)
		}
		v := s.View()
		if err := v.Restore(state); err != nil {
			return nil, g.violated("A view cannot be restored from what it sees of tile "+s.Tile.String(), err.Error(),
				"a part of the state that needs another area's")
		}
		at := fence.Position{Epoch: 1, Seq: fence.Seq(other.tick)}
		b.seen[s.Tile] = tile.Rim{View: v, Position: at, Tick: other.tick, Fresh: b.r.IntN(3) > 0}
	}
	return func(id fence.TileID) tile.Rim { return b.seen[id] }, nil
}

// unchanged compares what was seen with what Play has left of it, of views that have a snapshot.
func (b *border) unchanged(g *game, before map[fence.TileID][]byte) error {
	for id, was := range before {
		if is := pictureOf(b.seen[id].View); !same(was, is) {
			return g.violated(fmt.Sprintf("Play changes what it sees of tile %s", id), difference(was, is), inRim)
		}
	}
	return nil
}

// pictures are the snapshots of what is seen.
func (b *border) pictures() map[fence.TileID][]byte {
	all := map[fence.TileID][]byte{}
	for id, rim := range b.seen {
		all[id] = pictureOf(rim.View)
	}
	return all
}

func pictureOf(v tile.View) []byte {
	if s, ok := v.(interface{ Snapshot() ([]byte, error) }); ok {
		picture, _ := s.Snapshot() // what fails is the same before and after
		return picture
	}
	return nil
}
