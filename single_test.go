package tilefence_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/stream/share/redisshare"
	"github.com/tilefence/tilefence/tile"
)

// TestOnASingleRedis: one server that is no cluster carries commits, fan-out and the lists of workers. A player's
// intent goes in at the gateway and comes out at a watcher, and the tile is taken over.
func TestOnASingleRedis(t *testing.T) {
	// A server of its own: bridges of other tests would share the tile, and not find it in their authority.
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Views}})
	client, err := redisfence.Connect(t.Context(), redisfence.Options(stack.ViewsAddr))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() }) // after the servers, which release their tiles with it
	store, err := redisfence.New(client, &redisfence.Config{AllowNoReplicas: true, Persistence: redisfence.Volatile})
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	b := embedded(t)
	b.Store, b.Log, b.Workers = store, redisstream.New(store, client), redisshare.New(client, fence.World{})
	b.Fanout, err = redisfanout.New(client, nil)
	require.NoError(t, err)
	id := fence.TileID(rand.Uint64()>>1 | 1)

	first := tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, first.Own(id))
	leave := start(t, first)
	bridge, err := tilefence.NewBridgeServer(b, nil)
	require.NoError(t, err)
	start(t, bridge)
	view, gate := listen(t), listen(t)
	relay, err := tilefence.NewRelayServer(view.Addr().String(), b,
		func(context.Context, session.Identity, fence.TileID, fence.AreaSet) error { return nil },
		&tilefence.RelayServerConfig{Web: tilefence.Web{Listener: view}})
	require.NoError(t, err)
	start(t, relay)
	gateway, err := tilefence.NewGatewayServer(gate.Addr().String(), b,
		func(*http.Request) (session.Identity, error) { return session.Identity{Actor: "ann"}, nil },
		func(_ context.Context, a admission.Action) (admission.Action, error) { return a, nil },
		&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: gate}})
	require.NoError(t, err)
	start(t, gateway)
	await(t, first, id)

	var seen atomic.Int64 // rings, as the watcher has them
	watcher, err := relayclient.Dial(t.Context(), "ws://"+view.Addr().String(), &relayclient.Config{
		Sync: func(s relayclient.Sync) { seen.Store(int64(append(s.Snapshot.Blob, 0)[0])) },
		Frame: func(e fence.Entry) {
			if batch, err := stream.DecodeBatch(&e); err == nil {
				seen.Add(int64(len(batch.Events)))
			}
		},
	})
	require.NoError(t, err)
	defer func() { _ = watcher.Close() }()
	require.NoError(t, watcher.Subscribe(t.Context(), id))
	player, err := gatewayws.Dial(t.Context(), "ws://"+gate.Addr().String(), nil)
	require.NoError(t, err)
	defer func() { _ = player.Close() }()
	want := int64(0)
	ring := func() {
		waittest.Until(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			a, err := player.Do(ctx, gatewayws.Request{Tile: id, Kind: admission.Move})
			return err == nil && a.Outcome == stream.Applied
		}, 20*time.Second, 20*time.Millisecond)
		want++ // at least: a movement without an answer may have been applied, too
		waittest.Until(t, func() bool { return seen.Load() >= want }, 20*time.Second, 5*time.Millisecond,
			"the watcher saw no ring")
	}
	ring()
	second := tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, second.Own(id)) // it follows, since the first owns the tile
	start(t, second)
	follows(t, second, id)
	require.NoError(t, leave.stop())
	await(t, second, id)
	ring()
	status, _ := second.Host().TileStatus(id)
	assert.Equal(t, tile.Serving, status.State)
	assert.EqualValues(t, 2, status.Epoch)
}
