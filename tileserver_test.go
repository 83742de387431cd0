package tilefence_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile"
)

// A server that comes back owns the tiles without an owner and follows the others; one that stops hands its tiles over.
func TestOwnElseFollow(t *testing.T) {
	b := embedded(t)
	first, second := tileServer(t, b, tilefence.TileServerConfig{}), tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, first.Own(plaza))
	run := start(t, first)
	await(t, first, plaza)

	require.NoError(t, second.Own(plaza, harbour))
	start(t, second)
	await(t, second, harbour)
	follows(t, second, plaza)

	require.NoError(t, run.stop())
	assert.Equal(t, tile.Serving, state(second, plaza), "it was handed over before the first server ended")
	g, err := b.Authority.Lookup(t.Context(), plaza)
	require.NoError(t, err)
	assert.Equal(t, second.Contact(), g.Contact)
	assert.EqualValues(t, 2, g.Epoch)

	again := tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, again.Own(plaza, harbour))
	start(t, again)
	follows(t, again, plaza)
	follows(t, again, harbour)
}

// A tile that was handed over by an operator is followed; one that was given up is not.
func TestHandedOverTilesAreFollowed(t *testing.T) {
	b := embedded(t)
	first, second := tileServer(t, b, tilefence.TileServerConfig{}), tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, first.Own(plaza, harbour))
	start(t, first)
	start(t, second)
	await(t, first, plaza)
	await(t, first, harbour)

	require.NoError(t, first.Host().Drain(t.Context(), plaza, second.Contact()))
	follows(t, first, plaza)
	require.NoError(t, first.Host().Drain(t.Context(), harbour, ""))
	_, hasPart := first.Host().TileStatus(harbour)
	assert.False(t, hasPart)
	require.NoError(t, second.Own(harbour))
	await(t, second, harbour)
	_, hasPart = first.Host().TileStatus(harbour)
	assert.False(t, hasPart)
}

// The checkpointer's last pass comes after the tiles' last snapshots, and the farewell after everything else.
func TestRunStopsInOrder(t *testing.T) {
	b := embedded(t)
	var order record
	b.Authority = &watchedAuthority{b.Authority, &order}
	b.Members = &watchedGroup{b.Members, &order}
	b.Durable = &watchedDurable{b.Durable, &order}
	server := tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, server.Own(plaza))
	bridge, err := tilefence.NewBridgeServer(b, nil)
	require.NoError(t, err)
	checkpointer, err := tilefence.NewCheckpointServer(b, nil)
	require.NoError(t, err)
	run := start(t, serverFunc(func(ctx context.Context) error {
		return tilefence.Run(ctx, server, bridge, checkpointer)
	}))
	await(t, server, plaza)
	_, err = server.Submit(t.Context(), tile.Intent{Tile: plaza})
	require.NoError(t, err)
	require.NoError(t, run.stop())

	snapshot, found, err := b.Log.Snapshot(t.Context(), plaza)
	require.NoError(t, err)
	require.True(t, found)
	last, err := b.Log.Last(t.Context(), plaza)
	require.NoError(t, err)
	assert.Equal(t, last, snapshot.Position, "the last snapshot holds everything")
	durable, found, err := b.Durable.Get(t.Context(), plaza)
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, snapshot.Position, durable.Position, "and it is durable")
	events := order.all()
	released, left := slices.Index(events, "released"), slices.Index(events, "left")
	require.NotEqual(t, -1, released, "%v", events)
	require.NotEqual(t, -1, left, "%v", events)
	assert.Less(t, released, left)
	assert.Equal(t, "put", events[len(events)-1], "%v", events)
}

type serverFunc func(context.Context) error

func (f serverFunc) Run(ctx context.Context) error { return f(ctx) }

type watchedAuthority struct {
	fence.Authority
	order *record
}

func (a *watchedAuthority) Release(ctx context.Context, g fence.Grant) error {
	a.order.add("released")
	return a.Authority.Release(ctx, g)
}

type watchedDurable struct {
	checkpoint.Backend
	order *record
}

func (d *watchedDurable) Put(ctx context.Context, id fence.TileID, s fence.Snapshot) error {
	d.order.add("put")
	return d.Backend.Put(ctx, id, s)
}

type watchedGroup struct {
	route.Joiner
	order *record
}

func (g *watchedGroup) Join(
	contact string, table *route.Table, log *slog.Logger, notify func(route.Event),
) (route.Membership, error) {
	m, err := g.Joiner.Join(contact, table, log, notify)
	return &watchedMember{m, g.order}, err
}

type watchedMember struct {
	route.Membership
	order *record
}

func (m *watchedMember) Run(ctx context.Context) error {
	defer m.order.add("left")
	return m.Membership.Run(ctx)
}

// A request that never ends holds a server up no longer than the listener's bound.
func TestListenerIsDrainedWithinABound(t *testing.T) {
	begun := make(chan struct{})
	handler := func(own http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/", own)
		mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done()
		})
		return mux
	}
	server := tileServer(t, embedded(t), tilefence.TileServerConfig{Web: tilefence.Web{Handler: handler}})
	run := start(t, server)
	go func() {
		response, err := http.Get("http://" + server.Contact() + "/slow")
		if err == nil {
			response.Body.Close()
		}
	}()
	<-begun
	began := time.Now()
	require.NoError(t, run.stop())
	assert.Less(t, time.Since(began), 20*time.Second)
	_, err := http.Get("http://" + server.Contact() + "/slow")
	assert.Error(t, err, "the listener is closed")
}

// A server that comes back with nothing is handed its share of the tiles by the others.
func TestRestartedServerGetsItsShare(t *testing.T) {
	b := embedded(t)
	cfg := tilefence.TileServerConfig{RebalanceEvery: 50 * time.Millisecond}
	world := []fence.TileID{plaza, harbour, plaza + 1<<20, plaza + 2<<20, plaza + 3<<20, plaza + 5<<20}
	first, second, third := tileServer(t, b, cfg), tileServer(t, b, cfg), tileServer(t, b, cfg)
	require.NoError(t, third.Own(world...))
	run := start(t, third)
	for _, id := range world {
		await(t, third, id)
	}
	for _, s := range []*tilefence.TileServer{first, second} {
		require.NoError(t, s.Own(world...))
		start(t, s)
	}
	serves := func(s *tilefence.TileServer) (n int) {
		for _, id := range world {
			if state(s, id) == tile.Serving {
				n++
			}
		}
		return n
	}
	for _, id := range world {
		follows(t, first, id)
		follows(t, second, id)
	}
	require.NoError(t, run.stop())
	require.Equal(t, len(world), serves(first)+serves(second))

	again := tileServer(t, b, cfg)
	require.NoError(t, again.Own(world...))
	start(t, again)
	all := func() int { return serves(again) + serves(first) + serves(second) }
	waittest.Until(t, func() bool { return serves(again) >= 1 && all() == len(world) }, 20*time.Second,
		5*time.Millisecond, "what a tick takes here decides how many")
	waittest.Until(t, func() bool { // a hand-over is counted after the successor serves
		return first.Host().Stats().Rebalanced+second.Host().Stats().Rebalanced >= 1
	}, 20*time.Second, 5*time.Millisecond)
}

// A server that stops refuses tiles before anything has moved.
func TestStoppingServerTakesNoTiles(t *testing.T) {
	b := embedded(t)
	first, second := tileServer(t, b, tilefence.TileServerConfig{}), tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, first.Own(plaza))
	start(t, first)
	start(t, second)
	await(t, first, plaza)
	second.SetStopping()
	require.ErrorIs(t, first.Host().Drain(t.Context(), plaza, second.Contact()), tile.ErrHostEnded)
	assert.Equal(t, tile.Serving, state(first, plaza))
	_, begun := second.Host().TileStatus(plaza)
	assert.False(t, begun)
}
