package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/natstest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/fanout/natsfanout"
)

// TestListTiers: a tile that the broker carries, one that is on its way there, and one that is not there.
func TestListTiers(t *testing.T) {
	const moved, moving, quiet fence.TileID = 0x85283473fffffff, 0x85283083fffffff, 0x8528347bfffffff
	node := natstest.Start(t, nil)
	open := func() *natsfanout.Fanout {
		f, err := natsfanout.Open([]string{node.URL()}, &natsfanout.Config{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(f.Close)
		return f
	}
	ordinary, bridge := memfanout.New(), open()
	for _, tile := range []fence.TileID{moved, moving, moving} {
		stop, err := ordinary.Subscribe(t.Context(), tile, func([]byte) {})
		require.NoError(t, err)
		defer stop()
	}
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
			_, _ = bridge.Publish(t.Context(), []fanout.Message{{Tile: moved, Data: make([]byte, 100)},
				{Tile: moving, Data: make([]byte, 50)}})
			_ = bridge.PublishPresence(t.Context(), 1, []fence.TileID{moved, moving})
		}
	}()
	defer func() {
		close(done)
		<-stopped
	}()
	list := func(args ...string) map[fence.TileID]tierRow {
		var out bytes.Buffer
		tool := &tool{options: &options{json: true, during: 500 * time.Millisecond}, out: &printer{&out},
			errs:   &printer{io.Discard},
			broker: open(), audience: ordinary}
		require.NoError(t, listTiers(t.Context(), tool, args))
		rows := map[fence.TileID]tierRow{}
		for decoder := json.NewDecoder(&out); decoder.More(); {
			var r tierRow
			require.NoError(t, decoder.Decode(&r))
			rows[r.Tile] = r
		}
		return rows
	}
	rows := list()
	require.Len(t, rows, 2)
	require.Equal(t, "broker", rows[moved].Tier)
	require.Equal(t, "both", rows[moving].Tier)
	require.Equal(t, 2, rows[moving].Subscribers)
	require.Equal(t, 1, rows[moving].Present)
	require.Positive(t, rows[moved].Frames)
	rows = list(quiet.String(), moved.String())
	require.Len(t, rows, 2)
	require.Equal(t, "ordinary", rows[quiet].Tier)
}
