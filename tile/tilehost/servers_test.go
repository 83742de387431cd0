package tilehost_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
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
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// servers are the seams on the shared Redis cluster and a PostgreSQL database of the test's own.
func servers(t *testing.T) tile.Seams {
	addresses, database := stacktest.Redis(t), stacktest.PostgresDB(t)
	client := redis.NewClusterClient(redisfence.Options(addresses...))
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
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
	*tilehost.Host
	contact string
	stop    context.CancelFunc
	ended   chan error
}

func serveHost(t *testing.T, seams tile.Seams, client *tilehttp.Client, hooks ...tile.Hooks) *tileServer {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s := &tileServer{contact: server.Listener.Addr().String(), ended: make(chan error, 1)}
	cfg := tile.Config{TickInterval: 100 * time.Millisecond, SuspectAfter: 30 * time.Second,
		Timeouts: tile.Timeouts{CommitTimeout: 2 * time.Second, BootTimeout: 30 * time.Second}}
	for _, h := range hooks {
		cfg.Hooks = h
	}
	seams.Handover = client.Handover
	var err error
	s.Host, err = tilehost.New(s.contact, seams, newRules,
		&tilehost.Config{Tile: cfg})
	require.NoError(t, err)
	intents, err := tilehttp.NewHandler(s, nil)
	require.NoError(t, err)
	mux.Handle(tilehttp.Path, intents)
	mux.Handle(tilehttp.HandoverPath, tilehttp.HandoverHandler(s, nil))
	var ctx context.Context
	ctx, s.stop = context.WithCancel(t.Context())
	go func() { s.ended <- s.Run(ctx) }()
	return s
}

// tileIDs are n tiles that no other test uses.
func tileIDs(n int) []fence.TileID {
	ids := make([]fence.TileID, n)
	for i := range ids {
		ids[i] = fence.TileID(rand.Uint64()>>9 | 1)
	}
	return ids
}

// sayOverHTTP sends a word to a tile by way of a host that may not have it, until there is an outcome.
func sayOverHTTP(ctx context.Context, t *testing.T, client *tilehttp.Client, contact string, id fence.TileID,
	word string) {
	in := tile.Intent{Tile: id, ActionID: word, Body: []byte(word)}
	first := contact
	for ctx.Err() == nil {
		o, err := client.Forward(ctx, contact, in)
		if err == nil {
			assert.Equal(t, stream.Applied, o.Outcome)
			return
		}
		if contact = namedBy(err); contact == "" {
			contact = first
			time.Sleep(20 * time.Millisecond)
		}
	}
	t.Error("no answer in time")
}

// On real servers and over HTTP: tiles are claimed, taken over, and drained to a successor with and without a
// follower, while intents are sent, each of which happens once.
func TestHostsOnRealServers(t *testing.T) {
	seams := servers(t)
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()
	a, b := serveHost(t, seams, client), serveHost(t, seams, client)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ids := tileIDs(32)
	require.NoError(t, a.Own(ids...))
	require.NoError(t, a.Await(ctx, ids...))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			sayOverHTTP(ctx, t, client, a.contact, id, "first")
			switch i % 4 {
			case 0:
				assert.NoError(t, b.TakeOver(id))
				assert.NoError(t, b.Await(ctx, id))
			case 1:
				assert.NoError(t, b.Follow(id))
				assert.NoError(t, a.Drain(ctx, id, b.contact))
			case 2:
				assert.NoError(t, a.Drain(ctx, id, b.contact))
			}
			sayOverHTTP(ctx, t, client, a.contact, id, "second")
			sayOverHTTP(ctx, t, client, b.contact, id, "third")
		})
	}
	all.Wait()
	waittest.Until(t, func() bool { return len(a.Status()) == 8 && len(b.Status()) == 24 }, 10*time.Second,
		10*time.Millisecond)
	a.stop()
	b.stop()
	require.NoError(t, <-a.ended)
	require.NoError(t, <-b.ended)
	for _, id := range ids {
		assert.Equal(t, []string{"first", "second", "third"}, wordsOf(t, seams.Log, id), "tile %s", id)
		g, err := seams.Authority.Lookup(t.Context(), id)
		require.NoError(t, err)
		assert.False(t, g.Held())
	}
}

// A process that holds many tiles is gone; another one that follows them learns of it.
func TestHostTakesOverADeadOnesTilesOnRealServers(t *testing.T) {
	seams := servers(t)
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()
	dead := &hostLine{}
	a := serveHost(t, dead.of(seams), client)
	var mu sync.Mutex
	var took []tile.TakeoverInfo
	b := serveHost(t, seams, client, tile.Hooks{TookOver: func(i tile.TakeoverInfo) {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, i)
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ids := tileIDs(100)
	require.NoError(t, a.Own(ids...))
	require.NoError(t, a.Await(ctx, ids...))
	require.NoError(t, b.Follow(ids...))
	followed := func() (n int) {
		for _, s := range b.Status() {
			if s.State == tile.Following && s.Owner.Contact == a.contact {
				n++
			}
		}
		return n
	}
	waittest.Until(t, func() bool { return followed() == len(ids) }, 20*time.Second, 20*time.Millisecond)
	for _, id := range ids[:20] {
		sayOverHTTP(ctx, t, client, a.contact, id, "before")
	}
	dead.cut.Store(true)
	began := time.Now()
	b.Suspect(a.contact)
	require.NoError(t, b.Await(ctx, ids...))
	t.Logf("%d tiles in %s", len(ids), time.Since(began))
	for _, id := range ids[:20] {
		sayOverHTTP(ctx, t, client, b.contact, id, "after")
	}
	mu.Lock()
	total := make([]time.Duration, 0, len(took))
	for _, i := range took {
		assert.True(t, i.Warm)
		total = append(total, i.Minted+i.Replayed+i.Installed)
	}
	mu.Unlock()
	slices.Sort(total)
	t.Logf("a take-over, from its turn: median %s, longest %s", total[len(total)/2], total[len(total)-1])
	dead.cut.Store(false)
	waittest.Until(t, func() bool { return len(a.Status()) == 0 }, 20*time.Second, 20*time.Millisecond,
		"the dead one wakes up and stands down")
	a.stop()
	b.stop()
	require.NoError(t, <-a.ended)
	require.NoError(t, <-b.ended)
	for _, id := range ids[:20] {
		assert.Equal(t, []string{"before", "after"}, wordsOf(t, seams.Log, id), "tile %s", id)
	}
}
