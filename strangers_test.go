package tilefence_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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
	"github.com/tilefence/tilefence/tile/tilehost"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// A member takes the contact of a living tile server and dies, again and again. It came before the server did or
// after it; the server keeps its tiles, and when it really dies they are taken as if no impostor had been.
func TestAnImpostorsDeathMovesNoTile(t *testing.T) {
	for name, before := range map[string]bool{"it comes later": false, "it was there before": true} {
		t.Run(name, func(t *testing.T) {
			b := embedded(t)
			group := b.Members.(*route.Group)
			events := make(chan int, 1000)
			follower := tileServer(t, b, tilefence.TileServerConfig{Notify: func(e route.Event, suspected int) {
				if e.Kind == route.Died {
					events <- suspected
				}
			}})
			start(t, follower)
			dying := &killable{Joiner: group}
			b.Members = dying
			owner := tileServer(t, b, tilefence.TileServerConfig{})
			impostor := func() *route.GroupMember {
				m, err := group.NewMember(owner.Contact(), new(route.Table), nil)
				require.NoError(t, err)
				go func() { _ = m.Run(t.Context()) }()
				waittest.Until(t, func() bool { return len(m.Members()) > 0 }, 10*time.Second, time.Millisecond)
				return m
			}
			var m *route.GroupMember
			if before {
				m = impostor()
			}
			var ids []fence.TileID
			for i := range fence.TileID(7) {
				ids = append(ids, plaza+i)
			}
			require.NoError(t, owner.Own(ids...))
			start(t, owner)
			require.NoError(t, owner.Host().Await(t.Context(), ids...))
			require.NoError(t, follower.Follow(ids...))
			for _, id := range ids {
				follows(t, follower, id)
			}
			for range 3 {
				if m == nil {
					m = impostor()
				}
				m.Kill()
				m = nil
				suspected := <-events
				if !before {
					assert.Zero(t, suspected, "it never held the contact")
				}
				before = false
				time.Sleep(500 * time.Millisecond) // 25 ticks
				for _, id := range ids {
					g, err := b.Authority.Lookup(t.Context(), id)
					require.NoError(t, err)
					require.Equal(t, owner.Contact(), g.Contact)
					require.EqualValues(t, 1, g.Epoch)
					require.Equal(t, tile.Following, state(follower, id))
				}
			}
			dying.member.Kill()
			assert.Equal(t, len(ids), <-events)
		})
	}
}

// killable makes members that can be killed.
type killable struct {
	route.Joiner
	member *route.GroupMember
}

func (k *killable) Join(
	contact string, table *route.Table, log *slog.Logger, notify func(route.Event),
) (route.Membership, error) {
	m, err := k.Joiner.Join(contact, table, log, notify)
	if err == nil {
		k.member = m.(*route.GroupMember)
	}
	return m, err
}

// A process that reaches the port of a tile server without keys asks for 1,000 tiles without an owner, by hand-overs
// and by intents.
func TestStrangersBeginNoTiles(t *testing.T) {
	const asked, most = 1000, 20
	cfg := tilefence.TileServerConfig{Spawn: always}
	cfg.Host.MaxTiles = most
	cfg.Host.Allow = func(id fence.TileID) error {
		if id&1 == 0 {
			return fmt.Errorf("tile %s is another region's", id)
		}
		return nil
	}
	s := tileServer(t, embedded(t), cfg)
	start(t, s)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	attack := func(path string, body func(id fence.TileID) string) {
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				for i := worker; i < asked; i += 8 {
					ask(t, client, "http://"+s.Contact()+path, body(plaza+fence.TileID(i)))
				}
			})
		}
		wg.Wait()
	}
	attack(tilehttp.HandoverPath, func(id fence.TileID) string {
		return fmt.Sprintf(`{"v":1,"tile":"%s","epoch":7,"position":"7/0/0000000000000000","from":"x:1","to":%q}`, id,
			s.Contact())
	})
	assert.Empty(t, s.Host().Status(), "the store names no giver")
	peer, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer peer.Close()
	for i := range asked {
		_, _ = peer.Forward(t.Context(), s.Contact(), tile.Intent{Tile: plaza + fence.TileID(i)}) // most are refused
	}
	begun := s.Host().Status()
	assert.Len(t, begun, most)
	for _, b := range begun {
		assert.Equal(t, fence.TileID(1), b.Tile&1)
	}
	_, err = s.Submit(t.Context(), tile.Intent{Tile: begun[0].Tile})
	require.NoError(t, err)
	_, err = s.Submit(t.Context(), tile.Intent{Tile: plaza + asked})
	require.ErrorIs(t, err, tilehost.ErrFull)
	_, err = s.Submit(t.Context(), tile.Intent{Tile: plaza + asked + 1})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}

// ask posts a request whose answer does not matter.
func ask(t *testing.T, client *http.Client, url, body string) {
	response, err := client.Post(url, "application/json", strings.NewReader(body))
	if assert.NoError(t, err) {
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
}

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
		func(_ context.Context, in tile.Intent) (tile.Result, error) {
			to := made[int(in.Body[0])%len(made)]
			return tile.Result{}, &tile.RedirectError{Tile: in.Tile, Epoch: 1 << 40, Contact: to}
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
