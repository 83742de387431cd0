package game_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tiletest"
)

// TestRulesKeepTheirPromises holds the game to what the product asks of every game.
func TestRulesKeepTheirPromises(t *testing.T) {
	ground := newDisk(3)
	newGame := func(fence.TileID) (tile.Rules, error) { return game.NewRules(ground) }
	tiletest.Run(t, newGame, func(r *rand.Rand) tile.Intent {
		o := game.Order{Kind: game.OrderKind(1 + r.IntN(5)), Cell: uint16(r.IntN(ground.Len() + 1)),
			Target: uint32(r.IntN(14))}
		in := tile.Intent{Actor: fmt.Sprint("actor", r.IntN(12)), Body: o.Encode()}
		if o.Kind.Card() && r.IntN(10) > 0 {
			in.ActionID = fmt.Sprint("card-", r.Uint64())
		}
		if r.IntN(20) == 0 {
			in.Body = in.Body[:r.IntN(len(in.Body))]
		}
		return in
	}, nil)
}
