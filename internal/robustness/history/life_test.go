package history_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// TestEachRunOfAHostIsAClient: a host loses its tile and takes it again. What the second run does, the first must
// not be blamed for.
func TestEachRunOfAHostIsAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memfence.New()
		seams := tile.Seams{Authority: memfence.NewAuthority(), Store: memory, Log: memstream.New(memory)}
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		var ends atomic.Int32
		start := func(contact string, records history.Sink) *tilehost.Host {
			cfg := tilehost.Config{Tile: tile.Config{TickInterval: 100 * time.Millisecond},
				Hooks: tilehost.Hooks{Ended: func(tilehost.EndInfo) { ends.Add(1) }}}
			seams, _ := history.NewRecorder(contact, records, nil).Host(contact, seams, nil, &cfg)
			rules := func(fence.TileID) (tile.Rules, error) { return &game.Register{}, nil }
			h, err := tilehost.New(contact, seams, rules, &cfg)
			require.NoError(t, err)
			go func() { _ = h.Run(ctx) }()
			return h
		}
		records := &history.Memory{}
		a, b := start("a:1", records), start("b:1", &history.Memory{})
		for _, h := range []*tilehost.Host{a, b, a} {
			require.NoError(t, h.TakeOver(testTile))
			require.NoError(t, h.Await(ctx, testTile))
			time.Sleep(time.Second) // the one before is refused, and ends
		}
		require.EqualValues(t, 2, ends.Load(), "the caller's hook is called too")
		commits, ended := map[string]int{}, map[string]string{}
		for _, r := range records.Records() {
			switch {
			case r.Kind == history.Commit:
				require.EqualValues(t, map[string]int{"85283083fffffff#1": 1, "85283083fffffff#2": 3}[r.Client],
					r.Commit.Epoch)
				commits[r.Client]++
			case r.Kind == history.Life && r.Life.Ended:
				ended[r.Client] = r.Life.State
			}
		}
		require.Len(t, commits, 2)
		require.Equal(t, map[string]string{"85283083fffffff#1": tile.StoodDown.String()}, ended)
	})
}
