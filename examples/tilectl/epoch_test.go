package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// counter is a game whose state is how many intents it has seen.
type counter struct{ n int }

func (c *counter) Resolve(_ fence.Tick, in []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for range in {
		events, outcomes = append(events, []byte("+")), append(outcomes, stream.Applied)
	}
	return events, outcomes
}
func (c *counter) Apply(_ fence.Tick, events [][]byte) error { c.n += len(events); return nil }
func (c *counter) Snapshot() ([]byte, error)                 { return make([]byte, c.n), nil }
func (c *counter) Restore(snapshot []byte) error             { c.n = len(snapshot); return nil }

// TestAnImpossibleEpochIsRepaired: an owner hash, and entries, of epoch 2^53-1 brick a tile; the repair leaves all that
// its owners have committed.
func TestAnImpossibleEpochIsRepaired(t *testing.T) {
	s := newServers(t)
	seams, id, client, k := s.seams, s.id, s.client, fence.KeysOf(s.id)

	// play runs the tile for n intents; the error is why it could not.
	play := func(n int) (state int, err error) {
		game := &counter{}
		p, err := tile.New(id, "127.0.0.1:1", seams, game, &tile.Config{TickInterval: 5 * time.Millisecond,
			SnapshotEvery: 1 << 20, Timeouts: tile.Timeouts{BootTimeout: 3 * time.Second}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		for range n {
			if _, err := p.Submit(t.Context(), tile.Intent{Tile: id}); err != nil {
				return 0, <-ended
			}
		}
		stop()
		return game.n, <-ended
	}
	state, err := play(3)
	require.NoError(t, err)
	require.Equal(t, 3, state)

	last, err := client.XRevRangeN(t.Context(), k.Stream, "+", "-", 1).Result()
	require.NoError(t, err)
	var seq uint64
	_, err = fmt.Sscanf(last[0].ID, "%d-0", &seq)
	require.NoError(t, err)
	forged := fence.Commit{Tile: id, Epoch: fence.MaxNumber, Contact: "evil:1", Tick: 1, Payload: []byte{0},
		Prev: fence.Position{Epoch: fence.MaxNumber, Seq: fence.Seq(seq)}}
	e := forged.Entry()
	require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: k.Stream, ID: fmt.Sprintf("%d-0", seq+1),
		Values: []any{stream.FrameField, string(e.Frame)}}).Err())
	require.NoError(t, client.HSet(t.Context(), k.Owner, "head", e.Position.String(), "tick", "1", "contact",
		"evil:1").Err())
	_, err = play(1)
	require.Error(t, err, "bricked")

	tilectl := func(line string) (int, string) {
		var out, errs bytes.Buffer
		args := append(slices.Clone(s.flags), strings.Fields(line)...)
		status := run(t.Context(), args, strings.NewReader("yes\n"), &out, &errs)
		return status, out.String() + errs.String()
	}
	status, out := tilectl("epoch repair -dry-run " + id.String())
	require.Equal(t, statusOK, status, out)
	assert.Contains(t, out, "owner hash to delete: true; stream entries to delete: 1")
	status, out = tilectl("epoch repair " + id.String())
	require.Equal(t, statusOK, status, out)
	assert.Contains(t, out, "repaired")
	state, err = play(2)
	require.NoError(t, err)
	assert.Equal(t, 5, state, "all that was committed is there")
	status, out = tilectl("epoch repair " + id.String())
	require.Equal(t, statusOK, status, out)
	assert.Contains(t, out, "owner hash to delete: false; stream entries to delete: 0")
}
