package tile_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// servers are the seams on the shared Redis cluster and a PostgreSQL database of the test's own.
func servers(t *testing.T) tile.Seams {
	addresses, database := stacktest.Redis(t), stacktest.PostgresDB(t)
	client := redis.NewClusterClient(redisfence.Options(addresses...))
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisfence.New(client, nil)
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	pool, err := pgxpool.New(t.Context(), database)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	authority, err := pgfence.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, authority.Migrate(t.Context()))
	return tile.Seams{Authority: authority, Store: store, Log: redisstream.New(store, client)}
}

// tileServer is a host behind HTTP, as in a process of its own.
type tileServer struct {
	*tile.Host
	contact string
	stop    context.CancelFunc
	ended   chan error
}

func serveHost(t *testing.T, seams tile.Seams, client *tilehttp.Client) *tileServer {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s := &tileServer{contact: server.Listener.Addr().String(), ended: make(chan error, 1)}
	var err error
	s.Host, err = tile.NewHost(s.contact, seams, func(fence.TileID) (tile.Rules, error) { return &ledgerRules{}, nil },
		&tile.HostConfig{Tile: tile.Config{TickInterval: 50 * time.Millisecond, CommitTimeout: 2 * time.Second, Handover: client.Handover}})
	require.NoError(t, err)
	mux.Handle(tilehttp.Path, tilehttp.Handler(s))
	mux.Handle(tilehttp.HandoverPath, tilehttp.HandoverHandler(s))
	var ctx context.Context
	ctx, s.stop = context.WithCancel(t.Context())
	go func() { s.ended <- s.Run(ctx) }()
	return s
}

// On real servers and over HTTP: tiles are claimed, taken over and accepted while intents are sent, each of
// which happens once.
func TestHostsOnRealServers(t *testing.T) {
	seams := servers(t)
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()
	a, b := serveHost(t, seams, client), serveHost(t, seams, client)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	ids := make([]fence.TileID, 30)
	for i := range ids {
		ids[i] = fence.TileID(rand.Uint64()>>9 | 1)
	}
	require.NoError(t, a.Own(ids...))
	require.NoError(t, a.Await(ctx, ids...))

	// say sends a word to a tile by way of a host that may not have it.
	say := func(contact string, id fence.TileID, word string) {
		in := tile.Intent{Tile: id, ActionID: word, Body: []byte(word)}
		for attempt := 0; ctx.Err() == nil; attempt++ {
			o, err := client.Forward(ctx, contact, in)
			if err == nil {
				assert.Equal(t, stream.Applied, o)
				return
			}
			if next := namedBy(err); next != "" {
				contact = next
			} else {
				time.Sleep(20 * time.Millisecond)
			}
		}
		t.Error("no answer in time")
	}
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			say(a.contact, id, "first")
			switch i % 3 {
			case 0:
				assert.NoError(t, b.TakeOver(id))
				assert.NoError(t, b.Await(ctx, id))
			case 1:
				s, _ := a.TileStatus(id)
				assert.NoError(t, client.Handover(ctx, tile.Handover{Tile: id, Epoch: s.Epoch, Position: s.Position, From: a.contact, To: b.contact}))
			}
			say(a.contact, id, "second")
			say(b.contact, id, "third")
		})
	}
	all.Wait()
	require.Eventually(t, func() bool { return len(a.Status()) == 10 && len(b.Status()) == 20 }, 10*time.Second, 10*time.Millisecond)
	a.stop()
	b.stop()
	require.NoError(t, <-a.ended)
	require.NoError(t, <-b.ended)
	for _, id := range ids {
		words := wordsOf(t, seams.Log, id)
		assert.Equal(t, []string{"first", "second", "third"}, words, "tile %s", id)
		g, err := seams.Authority.Lookup(t.Context(), id)
		require.NoError(t, err)
		assert.False(t, g.Held())
	}
}
