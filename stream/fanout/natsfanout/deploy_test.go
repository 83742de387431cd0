package natsfanout_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/natstest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/natsfanout"
)

// TestDeployedPermissions: under deploy/nats/permissions.conf each actor can do what it has to, and nothing else.
func TestDeployedPermissions(t *testing.T) {
	conf, err := server.ProcessConfigFile("../../../deploy/nats/permissions.conf")
	require.NoError(t, err)
	node := natstest.Start(t, func(o *server.Options) { o.Users, o.MaxPayload = conf.Users, conf.MaxPayload })
	as := func(user string) *natsfanout.Fanout {
		return open(t, nil, "nats://tilefence-"+user+":CHANGE-ME-"+user+"@"+node.URL()[len("nats://"):])
	}
	bridge, relay, viewer := as("bridge"), as("relay"), as("viewer")
	tile := anyTile()
	frame := []fanout.Message{{Tile: tile, Data: []byte("frame")}}

	got, present := make(chan []byte, 1), make(chan uint64, 10)
	stop, err := relay.Subscribe(t.Context(), tile, func(data []byte) { got <- data })
	require.NoError(t, err)
	defer stop()
	stopPresence, err := bridge.SubscribePresence(tile, func(process uint64) { present <- process })
	require.NoError(t, err)
	defer stopPresence()
	_, err = bridge.Publish(t.Context(), frame)
	require.NoError(t, err)
	require.Equal(t, []byte("frame"), <-got)
	require.NoError(t, relay.PublishPresence(t.Context(), 7, []fence.TileID{tile}))
	require.Equal(t, uint64(7), <-present)

	for _, f := range []*natsfanout.Fanout{relay, viewer} {
		_, err = f.Publish(t.Context(), frame)
		require.ErrorIs(t, err, fence.ErrNotApplied, "only bridges publish frames")
	}
	for _, f := range []*natsfanout.Fanout{bridge, viewer} {
		require.ErrorIs(t, f.PublishPresence(t.Context(), 8, []fence.TileID{tile}), fence.ErrNotApplied)
	}
	_, err = bridge.Subscribe(t.Context(), tile, func([]byte) {})
	require.ErrorIs(t, err, fence.ErrNotApplied)

	w := fence.World{ID: fence.NewWorldID()}
	found, err := bridge.Patiently().EnterWorld(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, w, found)
	asks := as("relay")
	waittest.Until(t, func() bool { return asks.Stats().Connected }, patience, time.Millisecond)
	_, err = asks.Patiently().EnterWorld(t.Context(), fence.World{ID: fence.NewWorldID()})
	require.ErrorIs(t, err, fence.ErrWorld, "bridges answer, and relays ask")
	found, err = asks.Quickly().EnterWorld(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, w, found)
	_, err = bridge.Quickly().EnterWorld(t.Context(), w)
	require.NoError(t, err)
	require.Empty(t, append(asks.Check(t.Context()), bridge.Check(t.Context())...))
	require.Zero(t, asks.Stats().Refused, "that it may not answer is in order")

	nothing := natsfanout.Observer{Frame: func(fence.TileID, int) {}, Presence: func(fence.TileID, uint64) {}}
	observe := func(f *natsfanout.Fanout) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return f.Observe(ctx, nothing)
	}
	require.NoError(t, observe(viewer))
	require.ErrorIs(t, observe(bridge), fence.ErrNotApplied)
}
