package tile_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// doorman is a game that says no, and why: with what an intent asks for.
type doorman struct {
	ledgerRules
	heard []tile.Inputs
}

func (d *doorman) Play(_ fence.Tick, in tile.Inputs) (out tile.Outputs) {
	d.heard = append(d.heard, in)
	for _, i := range in.Intents {
		switch body := string(i.Body); body {
		case "in":
			out.Events = append(out.Events, i.Body)
			out.Decide(stream.Applied, "")
		case "panic":
			panic("the doorman faints")
		default:
			out.Decide(stream.Fizzled, body)
		}
	}
	return out
}

func (w *world) doorman() (*tile.TileProcessor, *doorman) {
	rules := &doorman{}
	p, err := tile.New(testTile, "a:1", w.seams(), rules, &tile.Config{})
	require.NoError(w.t, err)
	launch(w.t, p, nil)
	return p, rules
}

// TestARefusedSenderLearnsWhy, and nothing that is committed does.
func TestARefusedSenderLearnsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p, _ := w.doorman()
		bodies := []string{"in", "full", "in", "panic", "a\x1b[2Jb\xff", strings.Repeat("ö", 100)}
		results := make([]tile.Result, len(bodies))
		answered := make(chan error, len(bodies))
		for i, body := range bodies { // of one tick
			require.NoError(t, p.Queue(context.Background(), tile.Intent{Tile: testTile, Body: []byte(body)},
				func(r tile.Result, err error) { results[i] = r; answered <- err }))
		}
		for range bodies {
			require.NoError(t, <-answered)
		}
		assert.Equal(t, []tile.Result{
			{Outcome: stream.Applied},
			{Outcome: stream.Fizzled, Why: "full"},
			{Outcome: stream.Applied},
			{Outcome: stream.Rejected, Why: "the tile's rules failed with this intent"},
			{Outcome: stream.Fizzled, Why: "a?[2Jb?"},
			{Outcome: stream.Fizzled, Why: strings.Repeat("ö", tile.MaxWhy/2)},
		}, results)
		r, err := stream.Recover(t.Context(), w.log, testTile)
		require.NoError(t, err)
		require.NotEmpty(t, r.Entries)
		for i := range r.Entries {
			assert.NotContains(t, string(r.Entries[i].Payload)+string(r.Entries[i].Private), "full")
		}

		act := tile.Intent{Tile: testTile, ActionID: "knock", Body: []byte("late")}
		first, err := p.Submit(t.Context(), act)
		require.NoError(t, err)
		assert.Equal(t, tile.Result{Outcome: stream.Fizzled, Why: "late"}, first)
		again, err := p.Submit(t.Context(), act)
		require.NoError(t, err)
		assert.Equal(t, tile.Result{Outcome: stream.Fizzled}, again, "the outcome is remembered, and no more")
	})
}

// TestOutcomesWithoutReasonCostNothing: nothing is allocated for reasons that are not given.
func TestOutcomesWithoutReasonCostNothing(t *testing.T) {
	out := tile.Outputs{Outcomes: make([]stream.Outcome, 0, 4)}
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		out.Outcomes = out.Outcomes[:0]
		for range 4 {
			out.Decide(stream.Applied, "")
		}
	}))
	assert.Nil(t, out.Why)
	out.Outcomes = nil
	out.Decide(stream.Applied, "")
	out.Decide(stream.Rejected, "no")
	out.Decide(stream.Applied, "")
	assert.Equal(t, []string{"", "no"}, out.Why)
}
