package admission_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// owners is a store that counts how often it is asked.
type owners struct {
	owner fence.Owner
	err   error
	asked int
}

func (o *owners) Owner(context.Context, fence.TileID) (fence.Owner, error) {
	o.asked++
	return o.owner, o.err
}

func TestStoreRouter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &owners{owner: fence.Owner{Epoch: 3, Contact: "a"}}
		r, err := admission.NewStoreRouter(store, &admission.StoreRouterConfig{MaxTiles: 2, MaxAge: time.Second})
		require.NoError(t, err)
		route := func(id fence.TileID, want string, asked int) {
			t.Helper()
			got, err := r.Route(t.Context(), id)
			require.NoError(t, err)
			assert.Equal(t, want, got)
			assert.Equal(t, asked, store.asked)
		}
		route(1, "a", 1)
		route(1, "a", 1)
		time.Sleep(time.Second)
		route(1, "a", 2)

		r.Correct("a", &tile.RedirectError{Tile: 1, Epoch: 4, Contact: "b"})
		route(1, "b", 2)
		r.Correct("z", &tile.RedirectError{Tile: 1, Epoch: 2, Contact: "y"})
		route(1, "b", 2) // an older owner is no news
		r.Correct("b", &tile.RedirectError{Tile: 1})
		store.owner = fence.Owner{Epoch: 5, Contact: "c"}
		route(1, "c", 3)
		r.Correct("c", &tile.RedirectError{Tile: 1, Epoch: 5, Contact: "c"})
		route(1, "c", 4) // a process that sends to itself

		route(2, "c", 5)
		route(3, "c", 6)
		route(1, "c", 7) // only two are remembered

		store.owner = fence.Owner{}
		_, err = r.Route(t.Context(), 9)
		var noRoute *admission.RouteError
		require.ErrorAs(t, err, &noRoute)
		require.NoError(t, noRoute.Err)
		store.err = errors.New("down")
		_, err = r.Route(t.Context(), 9)
		require.ErrorIs(t, err, admission.ErrNoRoute)
		require.ErrorIs(t, err, store.err)
	})
	_, err := admission.NewStoreRouter(nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = admission.NewStoreRouter(&owners{}, &admission.StoreRouterConfig{MaxTiles: -1})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = admission.NewStoreRouter(&owners{}, &admission.StoreRouterConfig{MaxAge: -1})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}
