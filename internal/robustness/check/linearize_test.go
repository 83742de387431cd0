package check

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/robustness/history"
)

// TestUndecidedIsReported: a check that ran out of time fails the run, under a name of its own.
func TestUndecidedIsReported(t *testing.T) {
	blocked := make(chan struct{})
	t.Cleanup(func() { close(blocked) })
	slow := porcupine.Model{
		Init: func() any { return nil },
		Step: func(any, any, any) (bool, any) { <-blocked; return true, nil },
	}
	h := history.Join([]history.Record{{At: 1, Kind: history.Final, Tile: 7, Final: &history.FinalTile{}}})
	found := RunWithin(h, []Check{{Name: "authority linearizable", Judge: func(tile *Tile) {
		tile.linearize(slow, []porcupine.Operation{{Call: 0, Return: 1}}, "calls")
	}}}, time.Millisecond)
	require.Len(t, found, 1)
	require.Equal(t, undecided, found[0].Check)
	require.EqualValues(t, 7, found[0].Tile)
	require.Contains(t, found[0].Detail, "authority linearizable: no verdict on 1 operations within 1ms")
}
