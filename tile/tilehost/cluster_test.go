package tilehost_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/internal/ledgertest"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// cluster is several hosts on the same back ends, and the gossip between them: what they announce, highest
// epoch first.
type cluster struct {
	w      *world
	random *rand.Rand
	hosts  []*runningHost

	mu     sync.Mutex
	owners map[fence.TileID]fence.Owner
}

func (w *world) cluster(n int, random *rand.Rand, cfg tilehost.Config) *cluster {
	c := &cluster{w: w, random: random, owners: map[fence.TileID]fence.Owner{}}
	w.handover = func(ctx context.Context, o tile.Handover) error { return c.at(o.To).Accept(ctx, o) }
	for i := range n {
		h := w.host(fmt.Sprintf("host-%d:1", i), cfg, c.learn)
		c.hosts = append(c.hosts, h)
	}
	return c
}

// at is the host at a contact.
func (c *cluster) at(contact string) *runningHost {
	var i int
	_, _ = fmt.Sscanf(contact, "host-%d:1", &i)
	return c.hosts[i]
}

func (c *cluster) learn(o fence.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Epoch >= c.owners[o.Tile].Epoch {
		c.owners[o.Tile] = o
	}
}

// submit routes an intent as a gateway does: by gossip, then by redirects.
func (c *cluster) submit(ctx context.Context, in tile.Intent) (tile.Result, error) {
	var err error
	for range 200 {
		c.mu.Lock()
		contact := c.owners[in.Tile].Contact
		c.mu.Unlock()
		for range 5 {
			if contact == "" {
				contact = c.hosts[rand.IntN(len(c.hosts))].contact
			}
			var r tile.Result
			if r, err = c.at(contact).Submit(ctx, in); err == nil {
				return r, nil
			}
			if !errors.Is(err, tile.ErrRedirect) && !errors.Is(err, tile.ErrUnresolved) {
				return tile.Result{}, err
			}
			if contact = namedBy(err); contact == "" {
				break
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return tile.Result{}, err
}

// servers lists the hosts that serve a tile.
func (c *cluster) servers(id fence.TileID) (by []*runningHost) {
	for _, h := range c.hosts {
		if s, ok := h.TileStatus(id); ok && s.State == tile.Serving {
			by = append(by, h)
		}
	}
	return by
}

// oneServer is the only host that serves a tile, and the one the authority and the store name.
func (c *cluster) oneServer(t *testing.T, id fence.TileID) *runningHost {
	t.Helper()
	by := c.servers(id)
	require.Len(t, by, 1, "tile %s", id)
	g, err := c.w.authority.Lookup(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, by[0].contact, g.Contact)
	o, err := c.w.store.Owner(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, g.Epoch, o.Epoch)
	return by[0]
}

// namedBy is the contact that an error of Submit sends the intent to; empty if it names none.
func namedBy(err error) string {
	if redirect, ok := errors.AsType[*tile.RedirectError](err); ok {
		return redirect.Contact
	}
	if unresolved, ok := errors.AsType[*tile.UnresolvedError](err); ok {
		return unresolved.Contact // the same ActionID: one outcome
	}
	return ""
}

func (c *cluster) end(t *testing.T) {
	var all sync.WaitGroup
	for _, h := range c.hosts {
		all.Go(func() { h.end(t) })
	}
	all.Wait()
}

// traffic submits n intents, each an action with a word of its own, spread over a time and the tiles, while
// meddle is called at random times. Each must be applied, and be in its tile's history once.
func (c *cluster) traffic(t *testing.T, ids []fence.TileID, n int, over time.Duration, meddle func()) {
	var all sync.WaitGroup
	said := map[fence.TileID][]string{}
	ended := make(chan struct{})
	for i := range n {
		id, after := ids[c.random.IntN(len(ids))], time.Duration(c.random.Int64N(int64(over)))
		word := fmt.Sprint("w", i)
		said[id] = append(said[id], word)
		all.Go(func() {
			time.Sleep(after)
			o, err := c.submit(t.Context(), tile.Intent{Tile: id, ActionID: word, Body: []byte(word)})
			assert.NoError(t, err)
			assert.Equal(t, stream.Applied, o.Outcome)
		})
	}
	var meddler sync.WaitGroup
	meddler.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Duration(c.random.Int64N(int64(500 * time.Millisecond)))):
				meddle()
			}
		}
	})
	all.Wait()
	close(ended)
	meddler.Wait()
	time.Sleep(5 * time.Second)
	for _, id := range ids {
		words := wordsOf(t, c.w.log, id)
		slices.Sort(words)
		slices.Sort(said[id])
		require.Equal(t, said[id], words, "tile %s", id)
	}
}

func TestHostsRouteIntentsWhileTilesMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.cluster(3, seed.Rand(t), tilehost.Config{})
		ids := tiles(12)
		for i, id := range ids {
			require.NoError(t, c.hosts[i%3].Own(id))
			require.NoError(t, c.hosts[i%3].Await(t.Context(), id))
		}
		moves := 0
		c.traffic(t, ids, 600, time.Minute, func() {
			moves++
			assert.NoError(t, c.hosts[c.random.IntN(3)].TakeOver(ids[c.random.IntN(len(ids))]))
		})
		assert.Greater(t, moves, 100, "too little happened")
		for _, id := range ids {
			h := c.oneServer(t, id)
			c.mu.Lock()
			assert.Equal(t, h.contact, c.owners[id].Contact, "gossip was corrected by side effect")
			c.mu.Unlock()
		}
		c.end(t)
	})
}

const testTile fence.TileID = 0x85283083fffffff

type ledgerRules = ledgertest.Ledger

// newRules makes the rules of tiles whose state no test reads.
func newRules(fence.TileID) (tile.Rules, error) { return &ledgerRules{}, nil }

// world is a set of embedded back ends for the hosts of a test.
type world struct {
	t         *testing.T
	store     *memfence.Store
	log       *memstream.Log
	authority fence.Authority
	handover  func(context.Context, tile.Handover) error // of the hosts that begin from now on
}

func newWorld(t *testing.T) *world {
	s := memfence.New()
	return &world{t: t, store: s, log: memstream.New(s), authority: memfence.NewAuthority()}
}

func (w *world) seams() tile.Seams {
	return tile.Seams{Authority: w.authority, Store: w.store, Log: w.log, Handover: w.handover}
}

// tiles are n neighbouring tiles.
func tiles(n int) []fence.TileID {
	ids := make([]fence.TileID, n)
	for i := range ids {
		ids[i] = testTile + fence.TileID(i)<<20
	}
	return ids
}

// wordsOf is what a tile's committed history says.
func wordsOf(t *testing.T, log stream.Log, id fence.TileID) []string {
	t.Helper()
	words, err := ledgertest.Committed(context.Background(), log, id)
	require.NoError(t, err)
	return words
}

// Of n tiles that began together no two tick within a third of the interval's n-th part.
func TestTilesTickApart(t *testing.T) {
	const n, interval = 37, 500 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		var began []time.Duration // in the interval
		h := w.host("a:1", tilehost.Config{Tile: tile.Config{TickInterval: interval, Hooks: tile.Hooks{
			Ticked: func(i tile.TickInfo) {
				mu.Lock()
				defer mu.Unlock()
				began = append(began, time.Duration(time.Now().Add(-i.Took).UnixNano())%interval)
			}}}})
		mine := tiles(n)
		require.NoError(t, h.Own(mine...))
		require.NoError(t, h.Await(t.Context(), mine...))
		time.Sleep(interval)
		mu.Lock()
		began = began[:0]
		mu.Unlock()
		time.Sleep(interval)
		mu.Lock()
		require.InDelta(t, n, len(began), 1)
		slices.Sort(began)
		for i := 1; i < len(began); i++ {
			assert.Greater(t, began[i]-began[i-1], interval/n/3)
		}
		mu.Unlock()
		h.end(t)
	})
}
