package tilefence_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/inspect"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile"
)

// inspected mounts an inspector as a game would, for who has the password.
func inspected(
	t *testing.T, s *tilefence.TileServer, b tilefence.Backends, cfg *inspect.Config,
) (ask func(method, path string) (int, string), client *inspect.Client) {
	t.Helper()
	page, err := inspect.New(s, b.Log, func(r *http.Request) error {
		if r.Header.Get("Authorization") != "Bearer secret" {
			return errors.New("no password")
		}
		return nil
	}, cfg)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/inspect/", http.StripPrefix("/inspect", page))
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	refused, err := http.Get(site.URL + "/inspect/tiles")
	require.NoError(t, err)
	require.Equal(t, http.StatusForbidden, refused.StatusCode)
	_ = refused.Body.Close()
	client = &inspect.Client{URL: site.URL + "/inspect",
		Header: http.Header{"Authorization": {"Bearer secret"}}}
	ask = func(method, path string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, site.URL+"/inspect/"+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer secret")
		if method == http.MethodPut { // stands for a POST of another origin's page
			r.Method = http.MethodPost
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	return ask, client
}

func TestInspector(t *testing.T) {
	b := embedded(t)
	cfg := tilefence.TileServerConfig{}
	cfg.Host.Tile.SnapshotEvery = 2
	first, second := tileServer(t, b, cfg), tileServer(t, b, cfg)
	require.NoError(t, first.Own(plaza))
	start(t, first)
	await(t, first, plaza)
	require.NoError(t, second.Own(plaza))
	start(t, second)
	follows(t, second, plaza)
	_, err := first.Submit(t.Context(), tile.Intent{Tile: plaza, Actor: "ann"})
	require.NoError(t, err)

	decode := func(_ fence.TileID, snapshot []byte) (any, error) {
		return map[string]int{"rings": int(snapshot[0])}, nil
	}
	reads, _ := inspected(t, first, b, &inspect.Config{Decode: decode})
	status, page := reads("GET", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "<table>")
	status, text := reads("GET", "tiles")
	require.Equal(t, http.StatusOK, status)
	var seen struct {
		Control bool
		Members []string
		Tiles   []struct {
			Tile, State, Owner string
			Epoch, Seq         int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &seen))
	assert.False(t, seen.Control)
	require.Len(t, seen.Tiles, 1)
	assert.Equal(t, plaza.String(), seen.Tiles[0].Tile)
	assert.Equal(t, "serving", seen.Tiles[0].State)
	assert.Equal(t, first.Contact(), seen.Tiles[0].Owner)
	assert.Equal(t, 1, seen.Tiles[0].Epoch)
	waittest.Until(t, func() bool {
		_, text = reads("GET", "state?tile="+plaza.String())
		var state struct{ State struct{ Rings int } }
		return json.Unmarshal([]byte(text), &state) == nil && state.State.Rings == 1
	}, 20*time.Second, 5*time.Millisecond)
	status, _ = reads("GET", "state?tile=nonsense")
	assert.Equal(t, http.StatusBadRequest, status)
	for _, path := range []string{"takeover", "drain"} {
		status, _ = reads("POST", path+"?tile="+plaza.String())
		assert.Equal(t, http.StatusNotFound, status, "it only reads")
	}

	controls, client := inspected(t, second, b, &inspect.Config{Control: true})
	status, _ = controls("PUT", "takeover?tile="+plaza.String())
	require.Equal(t, http.StatusForbidden, status, "a page of another origin")
	status, text = controls("POST", "takeover?tile="+plaza.String())
	require.Equal(t, http.StatusNoContent, status, text)
	await(t, second, plaza)
	status, text = controls("POST", "takeover?tile="+plaza.String())
	require.Equal(t, http.StatusConflict, status, "it is this server's already")
	require.Contains(t, text, "owns the tile already")
	seenBy, err := client.Tiles(t.Context())
	require.NoError(t, err)
	assert.True(t, seenBy.Control)
	require.Len(t, seenBy.Tiles, 1)
	require.ErrorContains(t, client.TakeOver(t.Context(), plaza), "409: this server owns the tile already")
	require.NoError(t, client.Drain(t.Context(), plaza, first.Contact()))
	await(t, first, plaza)
	s, _ := first.Host().TileStatus(plaza)
	assert.EqualValues(t, 3, s.Epoch)
}

func TestInspectorArguments(t *testing.T) {
	b := embedded(t)
	s := tileServer(t, b, tilefence.TileServerConfig{})
	anyone := func(*http.Request) error { return nil }
	_, err := inspect.New(nil, b.Log, anyone, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = inspect.New(s, b.Log, nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = inspect.New(s, nil, anyone, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}
