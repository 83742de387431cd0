package tilefence_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// A member names an internal service as the owner of tiles, in gossip and by redirects: with a path, a user and a
// query, and as a mere address. The gateway sends nothing there, and movements reach the owner that the store names.
func TestAGatewayCallsOnlyMembersAndOwners(t *testing.T) {
	var called atomic.Int64
	internal := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called.Add(1)
		t.Errorf("%s %s, Authorization %q", r.Method, r.URL, r.Header.Get("Authorization"))
	}))
	defer internal.Close()
	service := internal.Listener.Addr().String()
	made := []string{service, service + "/admin?do=", "user:secret@" + service, service + "/admin#"}

	b := embedded(t)
	owner := tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, owner.Own(plaza, harbour))
	start(t, owner)
	await(t, owner, plaza)
	await(t, owner, harbour)

	// The stranger is a member like any other, and redirects everything.
	redirects, err := tilehttp.NewHandler(tilehttp.SubmitterFunc(
		func(_ context.Context, in tile.Intent) (stream.Outcome, error) {
			to := made[int(in.Body[0])%len(made)]
			return 0, &tile.RedirectError{Tile: in.Tile, Epoch: 1 << 40, Contact: to}
		}), nil)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(tilehttp.Path, redirects)
	captured := httptest.NewServer(mux)
	defer captured.Close()
	stranger, err := b.Members.(*route.Group).NewMember(captured.Listener.Addr().String(), new(route.Table), nil)
	require.NoError(t, err)
	go func() { _ = stranger.Run(t.Context()) }()

	l := listen(t)
	gateway, err := tilefence.NewGatewayServer(l.Addr().String(), b, anybody, free,
		&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: l}})
	require.NoError(t, err)
	start(t, gateway)
	client, err := gatewayws.Dial(t.Context(), "ws://"+l.Addr().String()+"/", nil)
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	waittest.Until(t, func() bool { return len(stranger.Members()) == 3 }, 10*time.Second, time.Millisecond)

	for i := range fence.Epoch(40) {
		id, lie := plaza, made[int(i)%len(made)]
		if i%2 == 1 {
			id, lie = harbour, captured.Listener.Addr().String()
		}
		require.NoError(t, stranger.Announce(route.Entry{Tile: id, Epoch: 1000 + i, Contact: lie}))
		request := gatewayws.Request{Tile: id, Kind: admission.Move, Body: []byte{byte(i / 2)}}
		answer, err := client.Do(t.Context(), request)
		require.NoError(t, err, "%d: %s", i, lie)
		require.Equal(t, stream.Applied, answer.Outcome)
	}
	assert.Zero(t, called.Load())
}

// A client refuses a contact that would choose more of the URL than its host, and says why.
func TestAContactIsNoURL(t *testing.T) {
	var called atomic.Int64
	internal := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Add(1) }))
	defer internal.Close()
	service := internal.Listener.Addr().String()
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()
	for _, contact := range []string{service + "/admin?do=", "user:secret@" + service, service + "#", "a b", "", "a",
		strings.Replace(service, ":", ":0", 1)} {
		_, err := client.Forward(t.Context(), contact, tile.Intent{Tile: plaza})
		require.ErrorIs(t, err, fence.ErrNotApplied, contact)
		require.ErrorContains(t, err, "host:port", contact)
		require.NotErrorIs(t, err, fence.ErrInvalidArgument, "the intent is not to blame")
		if contact != "" {
			err = client.Handover(t.Context(), tile.Handover{Tile: plaza, Epoch: 1, From: "a:1", To: contact})
			require.ErrorIs(t, err, fence.ErrNotApplied, contact)
			require.ErrorContains(t, err, "host:port", contact)
		}
	}
	assert.Zero(t, called.Load())
}
