package tile_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// checked plays words with rules under Config.CheckResolve, and then a quiet minute.
func checked(t *testing.T, rules *bent, words ...string) (found []tile.ImpurityInfo, log string) {
	w := newWorld(t)
	var text bytes.Buffer
	cfg := &tile.Config{CheckResolve: true, Logger: slog.New(slog.NewTextHandler(&text, nil)),
		Hooks: tile.Hooks{Impure: func(i tile.ImpurityInfo) { found = append(found, i) }}}
	p, err := tile.New(testTile, "a:1", w.seams(), rules, cfg)
	require.NoError(t, err)
	r := launch(w.t, p, &rules.ledgerRules)
	for _, word := range words {
		assert.Equal(t, stream.Applied, r.say(t, "", word), "it is reported, and the tile goes on")
	}
	time.Sleep(time.Minute)
	require.NoError(t, r.drain())
	return found, text.String()
}

func TestResolveThatChangesTheStateIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found, log := checked(t, &bent{adds: true}, "one", "two")
		require.Greater(t, len(found), 120, "each tick")
		i := found[1]
		assert.Equal(t, testTile, i.Tile)
		assert.Equal(t, fence.Tick(2), i.Tick)
		assert.Equal(t, "two", string(i.Intents[0].Body))
		assert.Equal(t, string(i.Before)+" 2", string(i.After))
		assert.Equal(t, len(i.Before), i.Offset)
		assert.False(t, i.Unsteady)
		assert.Equal(t, 2, strings.Count(log, "level=ERROR"), "once a minute")
		assert.Contains(t, log, "Resolve has changed the state")
		assert.Contains(t, log, "look_for=\"a field of the rules that Resolve assigns")
	})
}

func TestSnapshotThatIsUnsteadyIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found, log := checked(t, &bent{counts: true}, "one")
		require.NotEmpty(t, found)
		assert.True(t, found[0].Unsteady)
		assert.Contains(t, log, "Snapshot gives other bytes each time")
		assert.NotContains(t, log, "Resolve has changed")
	})
}

func TestPureRulesPassTheCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found, log := checked(t, &bent{}, "one", "two", "three")
		assert.Empty(t, found)
		assert.NotContains(t, log, "level=ERROR")
	})
}

// BenchmarkCheckResolve is a quiet tick of rules whose state takes 64 KiB, with and without Config.CheckResolve.
func BenchmarkCheckResolve(b *testing.B) {
	for _, check := range []bool{false, true} {
		b.Run(fmt.Sprintf("check=%v", check), func(b *testing.B) {
			w := newWorld(nil)
			rules := &ledgerRules{}
			p, err := tile.New(testTile, "a:1", w.seams(),
				rules, &tile.Config{CheckResolve: check})
			require.NoError(b, err)
			require.NoError(b, p.BootOnly(b.Context()))
			rules.Words = strings.Fields(strings.Repeat("seven77 ", 8<<10))
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, p.PlayTicks(b.Context(), 1))
			}
		})
	}
}
