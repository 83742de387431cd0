package tilefence_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/fence/sqlitefence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/share/redisshare"
	"github.com/tilefence/tilefence/tile"
)

// deployment is a whole deployment: an authority, a coordination store and a durable store of its own.
type deployment struct {
	tilefence.Backends
	tiles *tilefence.TileServer
	seen  atomic.Int64 // rings of plaza, as the watcher has them
}

// deploy returns the back ends of a deployment of the name, which may be empty. It has the fan-out and the lists of
// members on client, or in memory if client is nil.
func deploy(t *testing.T, name string, client redis.UniversalClient) *deployment {
	t.Helper()
	authority, err := sqlitefence.Open(t.Context(), sqlitefence.Memory, &sqlitefence.Config{World: name})
	require.NoError(t, err)
	t.Cleanup(func() { _ = authority.Close() })
	world, err := authority.World(t.Context())
	require.NoError(t, err)
	d := &deployment{Backends: embedded(t)}
	d.Authority = authority
	if client != nil {
		d.Workers = redisshare.New(client, world)
		d.Fanout, err = redisfanout.New(client, &redisfanout.Config{World: world})
		require.NoError(t, err)
	}
	return d
}

// shared are the tiles of both deployments: they have the same numbers.
func shared() (ids []fence.TileID) {
	for i := range fence.TileID(12) {
		ids = append(ids, plaza+i<<1)
	}
	return ids
}

// begin starts every kind of server, bridges and checkpointers twice, and a watcher of one tile.
func (d *deployment) begin(t *testing.T) {
	t.Helper()
	cfg := tilefence.TileServerConfig{}
	cfg.Host.Tile.SnapshotEvery = 2
	d.tiles = tileServer(t, d.Backends, cfg)
	require.NoError(t, d.tiles.Own(shared()...))
	start(t, d.tiles)
	for range 2 {
		bridge, err := tilefence.NewBridgeServer(d.Backends, nil)
		require.NoError(t, err)
		start(t, bridge)
		checkpointer, err := tilefence.NewCheckpointServer(d.Backends, nil)
		require.NoError(t, err)
		start(t, checkpointer)
	}
	view := listen(t)
	server, err := tilefence.NewRelayServer(view.Addr().String(), d.Backends,
		func(context.Context, session.Identity, fence.TileID, fence.AreaSet) error { return nil },
		&tilefence.RelayServerConfig{Web: tilefence.Web{Listener: view},
			Relay: relay.Config{DrainWindow: time.Millisecond}})
	require.NoError(t, err)
	start(t, server)
	watcher, err := relayclient.Dial(t.Context(), "ws://"+view.Addr().String(), &relayclient.Config{
		Sync: func(s relayclient.Sync) { d.seen.Store(int64(append(s.Snapshot.Blob, 0)[0])) },
		Frame: func(e fence.Entry) {
			if batch, err := stream.DecodeBatch(&e); err == nil {
				d.seen.Add(int64(len(batch.Events)))
			}
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = watcher.Close() })
	await(t, d.tiles, plaza)
	require.NoError(t, watcher.Subscribe(t.Context(), plaza))
}

// ring rings n times in every tile, and waits until each is bridged, in the durable store, and the watcher has all of
// its tile and no more.
func (d *deployment) ring(t *testing.T, n int) {
	t.Helper()
	var rung sync.WaitGroup
	for _, id := range shared() {
		assert.NoError(t, d.tiles.Host().Await(t.Context(), id))
		rung.Go(func() {
			for range n {
				_, err := d.tiles.Submit(t.Context(), tile.Intent{Tile: id})
				assert.NoError(t, err)
			}
		})
	}
	rung.Wait()
	last := fence.Seq(1 + n) // the install, and a batch for each ring
	for _, id := range shared() {
		assert.True(t, waittest.Holds(func() bool {
			s, _, err := d.Durable.Get(t.Context(), id)
			marks, marksErr := d.Log.Marks(t.Context(), []fence.TileID{id})
			return err == nil && marksErr == nil && s.Seq == last && marks[0].Marks[stream.Checkpointed].Seq == last &&
				marks[0].Marks[stream.BridgeAcked].Seq == last
		}, 20*time.Second, 10*time.Millisecond), "tile %s is bridged and checkpointed", id)
	}
	seen := func() bool { return d.seen.Load() == int64(n) }
	assert.True(t, waittest.Holds(seen, 20*time.Second, 5*time.Millisecond),
		"the watcher converges")
}

// refused: every server that would work for the deployment ends, and has taken no tile.
func (d *deployment) refused(t *testing.T) {
	t.Helper()
	bridge, err := tilefence.NewBridgeServer(d.Backends, nil)
	require.NoError(t, err)
	checkpointer, err := tilefence.NewCheckpointServer(d.Backends, nil)
	require.NoError(t, err)
	tiles := tileServer(t, d.Backends, tilefence.TileServerConfig{})
	for _, s := range []tilefence.Server{bridge, checkpointer, tiles} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err := s.Run(ctx)
		cancel()
		require.ErrorIs(t, err, fence.ErrWorld, "%T", s)
		require.ErrorContains(t, err, "give the two worlds different names", "%T", s)
	}
}

// TestDeploymentsShareAFanout: two whole deployments whose tiles have the same numbers share the fan-out and nothing
// else. With names each has all of its tiles bridged and checkpointed, and its watchers converge. Without names the
// second is refused, and so is a deployment that is given the coordination store of another.
func TestDeploymentsShareAFanout(t *testing.T) {
	t.Parallel()
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Views}})
	client, err := redisfence.Connect(t.Context(), redisfence.Options(stack.ViewsAddr))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() }) // after the servers
	one, two := deploy(t, "one", client), deploy(t, "two", client)
	one.begin(t)
	two.begin(t)
	var rung sync.WaitGroup
	rung.Go(func() { one.ring(t, 3) })
	rung.Go(func() { two.ring(t, 2) })
	rung.Wait()

	// A process of one is given the coordination store of two.
	strange := deploy(t, "one", client)
	strange.Authority, strange.Store, strange.Log = one.Authority, two.Store, two.Log
	server := tileServer(t, strange.Backends, tilefence.TileServerConfig{})
	require.NoError(t, server.Own(harbour))
	require.ErrorIs(t, server.Run(t.Context()), fence.ErrWorld)
	_, err = one.Authority.Lookup(t.Context(), harbour)
	require.ErrorIs(t, err, fence.ErrNeverOwned)

	first := deploy(t, "", client)
	bridge, err := tilefence.NewBridgeServer(first.Backends, nil)
	require.NoError(t, err)
	start(t, bridge)
	key := fence.World{}.Key(fence.WorldRecord)
	waittest.Until(t, func() bool { return client.Exists(t.Context(), key).Val() == 1 }, 20*time.Second,
		5*time.Millisecond)
	deploy(t, "", client).refused(t)
}

// TestAnEmbeddedFanoutIsOfOneWorld: the same as above without names, of back ends in memory.
func TestAnEmbeddedFanoutIsOfOneWorld(t *testing.T) {
	t.Parallel()
	fanout := memfanout.New()
	first, second := deploy(t, "", nil), deploy(t, "", nil)
	first.Fanout, second.Fanout = fanout, fanout
	own, err := first.Authority.World(t.Context())
	require.NoError(t, err)
	_, err = fanout.EnterWorld(t.Context(), own)
	require.NoError(t, err)
	second.refused(t)
}
