package route_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
)

var _ route.OwnerReader = fence.Store(nil)

// owners is a store that counts how often it is asked.
type owners struct {
	mu    sync.Mutex
	owner fence.Owner // of every tile
	err   error
	asked int
}

func (o *owners) Owner(context.Context, fence.TileID) (fence.Owner, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	return o.owner, o.err
}

func newRouter(t testing.TB, table *route.Table, store route.OwnerReader, cfg *route.RouterConfig) *route.Router {
	t.Helper()
	r, err := route.NewRouter(table, store, cfg)
	require.NoError(t, err)
	return r
}

// TestTheStoreAsASource: without gossip, the store is asked, and remembered until it is too old or wrong.
func TestTheStoreAsASource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &owners{owner: fence.Owner{Epoch: 3, Contact: "a"}}
		r := newRouter(t, new(route.Table), store,
			route.RouterConfig{}.With(route.Tuning{MaxTiles: 2, MaxAge: time.Second}))
		routed := func(id fence.TileID, want string, asked int) {
			t.Helper()
			got, err := r.Route(t.Context(), id)
			require.NoError(t, err)
			assert.Equal(t, want, got)
			assert.Equal(t, asked, store.asked)
		}
		routed(1, "a", 1)
		routed(1, "a", 1)
		time.Sleep(time.Second)
		routed(1, "a", 2)

		r.Correct("a", route.Entry{Tile: 1, Epoch: 4, Contact: "b"})
		routed(1, "b", 2)
		r.Correct("z", route.Entry{Tile: 1, Epoch: 2, Contact: "y"})
		routed(1, "b", 2) // an older owner is no news
		r.Correct("b", route.Entry{Tile: 1})
		store.owner = fence.Owner{Epoch: 5, Contact: "c"}
		routed(1, "c", 3)
		r.Correct("c", route.Entry{Tile: 1, Epoch: 5, Contact: "c"})
		routed(1, "c", 4) // a process that sends to itself

		routed(2, "c", 5)
		routed(3, "c", 6)
		routed(1, "c", 7) // only two are remembered

		store.owner = fence.Owner{}
		_, err := r.Route(t.Context(), 9)
		var noRoute *route.NoRouteError
		require.ErrorAs(t, err, &noRoute)
		require.NoError(t, noRoute.Err)
		assert.Equal(t, fence.TileID(9), noRoute.Tile)
		store.err = errors.New("down")
		_, err = r.Route(t.Context(), 9)
		require.ErrorIs(t, err, route.ErrNoRoute)
		require.ErrorIs(t, err, store.err)
		assert.Equal(t, route.Stats{
			Store:    route.SourceStats{Answers: 8, Stale: 2},
			Redirect: route.SourceStats{Answers: 2, Stale: 1},
			// Two of the nine reads failed.
			StoreReads: 9, Failures: 2, Unread: 1,
		}, r.Stats())
	})
}

func TestNoOwnerIsFailClosed(t *testing.T) {
	t.Parallel()
	r := newRouter(t, new(route.Table), &owners{owner: fence.Owner{Epoch: 3}}, nil)
	_, err := r.Route(t.Context(), 1)
	require.ErrorIs(t, err, route.ErrNoRoute, "an owner hash without a contact names no owner")
}

// TestTheSources asks all three, one after the other, and gossip again once it has caught up.
func TestTheSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table, store := new(route.Table), &owners{}
		r := newRouter(t, table, store, route.RouterConfig{}.With(route.Tuning{MaxAge: time.Second}))
		routed := func(want string, asked int) {
			t.Helper()
			got, err := r.Route(t.Context(), 1)
			require.NoError(t, err)
			assert.Equal(t, want, got)
			assert.Equal(t, asked, store.asked)
		}
		hears := func(epoch fence.Epoch, contact string) {
			table.Learn(route.Entry{Tile: 1, Epoch: epoch, Contact: contact})
		}
		hears(1, "a")
		routed("a", 0)
		time.Sleep(time.Hour)
		routed("a", 0) // gossip has no age

		// The tile has moved, and gossip does not know yet.
		r.Correct("a", route.Entry{Tile: 1, Epoch: 2, Contact: "b"})
		r.Correct("a", route.Entry{Tile: 1, Epoch: 2, Contact: "b"}) // another intent that was under way
		routed("b", 0)
		store.owner = fence.Owner{Epoch: 2, Contact: "b"}
		time.Sleep(time.Second)
		routed("b", 1) // not a: gossip was found wrong, and has learned nothing since
		hears(2, "b")
		time.Sleep(time.Second)
		routed("b", 1) // gossip has caught up

		// Gossip is ahead of the store and of redirects.
		hears(4, "d")
		r.Correct("a", route.Entry{Tile: 1, Epoch: 3, Contact: "c"})
		routed("d", 1)

		// The owner cannot be reached, and the store still names it; then it is fine again.
		store.owner = fence.Owner{Epoch: 4, Contact: "d"}
		r.Correct("d", route.Entry{Tile: 1})
		routed("d", 2)
		time.Sleep(time.Second)
		routed("d", 2) // the store said the same as gossip, which is believed again

		// Released: gossip names no owner, and the store is asked for the successor.
		hears(4, "")
		store.owner = fence.Owner{Epoch: 5, Contact: "e"}
		routed("e", 3)
		routed("e", 3)

		// Gossip has the right epoch and the wrong owner: the answer of the process that was asked counts.
		hears(6, "x")
		routed("x", 3)
		r.Correct("x", route.Entry{Tile: 1, Epoch: 6, Contact: "f"})
		routed("f", 3)
		routed("f", 3)
		hears(6, "")

		// A release of what the store said.
		store.owner = fence.Owner{Epoch: 7, Contact: "g"}
		routed("g", 4)
		hears(7, "")
		store.owner = fence.Owner{}
		_, err := r.Route(t.Context(), 1)
		require.ErrorIs(t, err, route.ErrNoRoute)

		assert.Equal(t, route.Stats{
			Gossip: route.SourceStats{Answers: 6, Stale: 3}, Store: route.SourceStats{Answers: 5},
			Redirect:   route.SourceStats{Answers: 3},
			StoreReads: 5, Failures: 1,
		}, r.Stats())
	})
}

// TestARedirectDuringARead: the store's answer is older than what a redirect said meanwhile.
func TestARedirectDuringARead(t *testing.T) {
	t.Parallel()
	var r *route.Router
	store := readerFunc(func(context.Context, fence.TileID) (fence.Owner, error) {
		r.Correct("a", route.Entry{Tile: 1, Epoch: 4, Contact: "b"})
		return fence.Owner{Epoch: 3, Contact: "a"}, nil
	})
	r = newRouter(t, new(route.Table), store, nil)
	contact, err := r.Route(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "b", contact)
}

type readerFunc func(context.Context, fence.TileID) (fence.Owner, error)

func (f readerFunc) Owner(ctx context.Context, id fence.TileID) (fence.Owner, error) {
	return f(ctx, id)
}

// TestNoStaleAnswerTwice: whatever gossip, store and redirects say, in any order, a contact that was found
// wrong is not named again before something new was learned: from the store, from gossip, or from a
// redirect.
func TestNoStaleAnswerTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table, store := new(route.Table), &owners{}
		r, err := route.NewRouter(table, store, route.RouterConfig{}.With(route.Tuning{MaxAge: time.Hour}))
		require.NoError(t, err)
		contacts := rapid.SampledFrom([]string{"a", "b", "c"})
		var wrong string // the last contact corrected, while nothing new is known
		var routes uint64
		t.Repeat(map[string]func(*rapid.T){
			"gossip": func(t *rapid.T) {
				if e := anEntry(t); len(table.Learn(route.Entry{Tile: 1, Epoch: e.Epoch, Contact: e.Contact})) > 0 {
					wrong = ""
				}
			},
			"store": func(t *rapid.T) {
				store.owner = fence.Owner{Epoch: anEntry(t).Epoch, Contact: contacts.Draw(t, "owner")}
			},
			"correct": func(t *rapid.T) {
				found, now := contacts.Draw(t, "wrong"), anEntry(t)
				r.Correct(found, route.Entry{Tile: 1, Epoch: now.Epoch, Contact: now.Contact})
				wrong = found
			},
			"route": func(t *rapid.T) {
				routes++
				before := store.asked
				got, err := r.Route(context.Background(), 1)
				if err != nil {
					require.NotEqual(t, before, store.asked)
					return
				}
				if store.asked == before {
					require.NotEqual(t, wrong, got)
				} else {
					require.Equal(t, store.owner.Contact, got)
					wrong = ""
				}
			},
			"": func(t *rapid.T) {
				s := r.Stats()
				require.Equal(t, routes, s.Gossip.Answers+s.Store.Answers+s.Redirect.Answers+s.Failures)
				require.Equal(t, uint64(store.asked), s.StoreReads)
			},
		})
	})
}

// TestManyTiles: notes are kept by tile, over all shards.
func TestManyTiles(t *testing.T) {
	t.Parallel()
	table := new(route.Table)
	store := readerFunc(func(_ context.Context, id fence.TileID) (fence.Owner, error) {
		return fence.Owner{Epoch: 2, Contact: "store " + id.String()}, nil
	})
	r := newRouter(t, table, store, nil)
	var callers sync.WaitGroup
	for c := range fence.TileID(4) {
		callers.Go(func() {
			for id := c + 1; id <= 4000; id += 4 {
				table.Learn(route.Entry{Tile: id, Epoch: 1, Contact: "gossip"})
				for i, want := range []string{"gossip", "redirect", "store " + id.String()} {
					got, err := r.Route(t.Context(), id)
					assert.NoError(t, err)
					assert.Equal(t, want, got)
					r.Correct(got, []route.Entry{{Tile: id, Epoch: 2, Contact: "redirect"}, {Tile: id}, {Tile: id}}[i])
				}
			}
		})
	}
	callers.Wait()
	assert.Equal(t,
		route.Stats{Gossip: route.SourceStats{Answers: 4000, Stale: 4000},
			Store:    route.SourceStats{Answers: 4000, Stale: 4000},
			Redirect: route.SourceStats{Answers: 4000, Stale: 4000}, StoreReads: 4000}, r.Stats())
}

func TestRouterArguments(t *testing.T) {
	t.Parallel()
	for _, bad := range []func() (*route.Router, error){
		func() (*route.Router, error) { return route.NewRouter(nil, &owners{}, nil) },
		func() (*route.Router, error) { return route.NewRouter(new(route.Table), nil, nil) },
	} {
		_, err := bad()
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
}
