package fairshare_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/fairshare"
	"github.com/tilefence/tilefence/internal/seed"
)

// A pool agrees with a plain list of what everyone holds.
func TestPool(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 1))
	var p fairshare.Pool[int]
	held := map[string][]int{}
	for item := range 5000 {
		name := fmt.Sprint(rng.IntN(20))
		if rng.IntN(2) == 0 {
			p.Add(name, item)
			held[name] = append(held[name], item)
		} else if n := len(held[name]); n > 0 {
			i := rng.IntN(n)
			p.Remove(name, held[name][i])
			held[name] = append(held[name][:i:i], held[name][i+1:]...)
		}
		p.Remove(name, -1)
		most, holders := 0, 0
		for name, items := range held {
			require.Equal(t, len(items), p.Held(name))
			most = max(most, len(items))
			holders += min(1, len(items))
		}
		require.Equal(t, holders, p.Holders())
		heaviest, items := p.Heaviest()
		require.Len(t, items, most)
		if most > 0 {
			require.Equal(t, held[heaviest], items)
		}
	}
}
