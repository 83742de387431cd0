package relay

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/session"
)

// bouncer is a game's authentication and authorization, which a test changes as it goes.
type bouncer struct {
	asked, askedTiles atomic.Int64
	revoked           atomic.Bool  // nobody is let in any more, nor may watch anything
	lifetime          atomic.Int64 // of a session, nanoseconds; 0: for ever
}

// authenticate believes the token, which is the actor's name.
func (b *bouncer) authenticate(r *http.Request) (session.Identity, error) {
	b.asked.Add(1)
	who := session.Identity{Actor: session.Token(r), Value: "pool"}
	switch {
	case who.Actor == "" || b.revoked.Load():
		return session.Identity{}, errors.New("who are you")
	case who.Actor == "panic":
		panic("a bug of the game")
	case b.lifetime.Load() != 0:
		who.Expires = time.Now().Add(time.Duration(b.lifetime.Load()))
	}
	return who, nil
}

func (b *bouncer) authorize(_ context.Context, who session.Identity, _ fence.TileID, _ fence.AreaSet) error {
	b.askedTiles.Add(1)
	if b.revoked.Load() || who.Value != "pool" {
		return errors.New("not any more")
	}
	return nil
}

// guarded is a relay with a bouncer.
func (w *world) guarded(b *bouncer, edit func(*Config)) *server {
	cfg := still()
	cfg.Authenticate, cfg.authorize = b.authenticate, b.authorize
	if edit != nil {
		edit(cfg)
	}
	return w.serve(cfg)
}

// try makes a handshake with a token and returns the status of the answer.
func (s *server) try(t testing.TB, token, origin string) (*websocket.Conn, int) {
	header := http.Header{}
	if origin != "" {
		header.Set("Origin", origin)
	}
	c, resp, err := websocket.Dial(t.Context(), s.url, &websocket.DialOptions{
		Subprotocols: []string{relaypb.Subprotocol, session.TokenProtocol + token}, HTTPHeader: header})
	require.NotNil(t, resp)
	if err != nil {
		return nil, resp.StatusCode
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	return c, resp.StatusCode
}

// as is a connection of an actor.
func (s *server) as(t testing.TB, actor string) *websocket.Conn {
	c, status := s.try(t, actor, "")
	require.Equal(t, http.StatusSwitchingProtocols, status)
	return c
}

func resyncOf(tile fence.TileID) *relaypb.ClientMessage {
	return &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Resync{Resync: &relaypb.Resync{Tile: tile.String()}}}
}

func refreshWith(token string) *relaypb.ClientMessage {
	return &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Refresh{Refresh: &relaypb.Refresh{Token: token}}}
}

// A flood of requests that are no handshakes, or come from pages of other origins, does not reach the game.
func TestAuthenticationComesLast(t *testing.T) {
	w := newWorld(t)
	b := &bouncer{}
	s := w.guarded(b, nil)
	for range 300 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http"+s.url[2:], nil)
		require.NoError(t, err)
		r.Header.Set("Sec-WebSocket-Protocol", relaypb.Subprotocol)
		r.Header.Set("Authorization", "Bearer ann")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusUpgradeRequired, resp.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	_, status := s.try(t, "ann", "https://evil.test")
	require.Equal(t, http.StatusForbidden, status)
	require.Zero(t, b.asked.Load())
	_, status = s.try(t, "", "")
	require.Equal(t, http.StatusUnauthorized, status)
	require.EqualValues(t, 1, b.asked.Load())
	s.as(t, "ann")
	require.EqualValues(t, 2, b.asked.Load())
}

// A game that hangs, or panics, holds up nobody for longer than the deadline.
func TestTheGameHasADeadline(t *testing.T) {
	w := newWorld(t)
	w.claim(tileA, 1)
	s := w.guarded(&bouncer{}, func(c *Config) {
		c.Sessions.Timeout = 50 * time.Millisecond
		c.MaxClients = 1
		c.Authenticate = func(r *http.Request) (session.Identity, error) {
			if session.Token(r) == "panic" {
				panic("a bug of the game")
			}
			if session.Token(r) == "slow" {
				<-r.Context().Done()
			}
			return session.Identity{Actor: "ann"}, nil // too late is too late
		}
		c.authorize = func(ctx context.Context, _ session.Identity, tile fence.TileID, _ fence.AreaSet) error {
			if tile == tileA {
				<-ctx.Done()
			}
			if tile == tileB {
				panic("a bug of the game")
			}
			return nil
		}
	})
	_, status := s.try(t, "slow", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	_, status = s.try(t, "panic", "")
	require.Equal(t, http.StatusUnauthorized, status)
	c := s.as(t, "ann") // there is room: the two were counted out
	for _, tile := range []fence.TileID{tileA, tileB} {
		send(t, c, subscribeTo(tile.String()))
		require.Equal(t, relaypb.Code_CODE_FORBIDDEN, receive(t, c).GetError().GetCode())
	}
	send(t, c, refreshWith("panic"))
	require.Equal(t, relaypb.Code_CODE_UNAUTHENTICATED, receive(t, c).GetError().GetCode())
}

// Who lost the right to watch a tile is not served it again by asking again, in either way, nor left in it.
func TestAskingAgainIsAuthorizedAgain(t *testing.T) {
	for name, again := range map[string]*relaypb.ClientMessage{
		"subscription": subscribeTo(tileA.String()), "resync": resyncOf(tileA), "watch": {
			Body: &relaypb.ClientMessage_Watch{Watch: &relaypb.Watch{Tile: tileA.String(), Areas: []uint32{1, 2}}}}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := w.claim(tileA, 1)
			b := &bouncer{}
			s := w.guarded(b, nil)
			c := s.as(t, "ann")
			send(t, c, subscribeTo(tileA.String()))
			require.NotNil(t, receive(t, c).GetSync())
			send(t, c, again)
			if again.GetWatch() == nil { // fewer areas need no Sync
				require.NotNil(t, receive(t, c).GetSync())
			}
			eventually(t, func() bool { return b.askedTiles.Load() == 2 }, "the game is asked again")
			b.revoked.Store(true)
			send(t, c, again)
			require.Equal(t, relaypb.Code_CODE_FORBIDDEN, receive(t, c).GetError().GetCode())
			require.Zero(t, s.Stats().Subscriptions)
			o.tickOn(3)
			send(t, c, resyncOf(tileA))
			require.Equal(t, relaypb.Code_CODE_NOT_SUBSCRIBED, receive(t, c).GetError().GetCode(), "no frame came")
		})
	}
}

// A client names its areas itself: the game is given all that it would be sent, whichever message asks.
func TestAreasAreAuthorized(t *testing.T) {
	held := func(areas ...uint32) *relaypb.ClientMessage {
		return &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
			Held: []*relaypb.Held{{Tile: tileA.String(), Areas: areas}}}}}
	}
	watch := func(areas ...uint32) *relaypb.ClientMessage {
		return &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Watch{Watch: &relaypb.Watch{Tile: tileA.String(),
			Areas: areas, Number: 1}}}
	}
	w := newWorld(t)
	w.claim(tileA, 1)
	cfg := still()
	cfg.authorize = func(_ context.Context, _ session.Identity, _ fence.TileID, areas fence.AreaSet) error {
		if _, more := areas.Without(fence.Areas(1, 2)); more {
			return errors.New("out of sight")
		}
		return nil
	}
	s := w.serve(cfg)
	for name, ask := range map[string]*relaypb.ClientMessage{
		"whole tile": subscribeTo(tileA.String()), "every area": held(), "another": held(2, 3),
		"watch another": watch(2, 3), "watch every area": watch(),
	} {
		t.Run(name, func(t *testing.T) {
			c := s.raw(t, relaypb.Subprotocol)
			if ask.GetWatch() != nil {
				send(t, c, held(1))
				require.NotNil(t, receive(t, c).GetSync())
				send(t, c, watch(1, 2))
				require.True(t, receive(t, c).GetSync().GetOpens(), "what the player may see")
			}
			send(t, c, ask)
			require.Equal(t, relaypb.Code_CODE_FORBIDDEN, receive(t, c).GetError().GetCode())
			send(t, c, resyncOf(tileA))
			require.Equal(t, relaypb.Code_CODE_NOT_SUBSCRIBED, receive(t, c).GetError().GetCode())
		})
	}
}

func TestSessionsEndByActor(t *testing.T) {
	w := newWorld(t)
	b := &bouncer{}
	s := w.guarded(b, nil)
	first, second, other := s.as(t, "ann"), s.as(t, "ann"), s.as(t, "bob")
	eventually(t, func() bool { return s.Stats().Clients == 3 }, "they are past their handshakes")
	require.Equal(t, 0, s.EndActor("zoe"))
	require.Equal(t, 2, s.EndActor("ann"))
	require.Equal(t, relaypb.CloseEnded, closeStatus(t, first))
	require.Equal(t, relaypb.CloseEnded, closeStatus(t, second))
	eventually(t, func() bool { return s.Stats().Clients == 1 }, "they are gone")
	send(t, other, refreshWith("bob"))
	require.NotNil(t, receive(t, other).GetSession())
	s.as(t, "ann") // may come again, since the game lets her
}

func TestSessionsEndByTile(t *testing.T) {
	w := newWorld(t)
	w.claim(tileA, 1)
	w.claim(tileB, 1)
	s := w.guarded(&bouncer{}, nil)
	here, there := s.as(t, "ann"), s.as(t, "bob")
	send(t, here, subscribeTo(tileA.String()))
	send(t, there, subscribeTo(tileB.String()))
	require.NotNil(t, receive(t, here).GetSync())
	require.NotNil(t, receive(t, there).GetSync())
	require.Equal(t, 1, s.EndTile(tileA))
	require.Equal(t, relaypb.CloseEnded, closeStatus(t, here))
	send(t, there, resyncOf(tileB))
	require.NotNil(t, receive(t, there).GetSync())
}

// A handshake, or a subscription, that the game agreed to before it ended the sessions does not slip in after it.
func TestNobodySlipsInWhileSessionsEnd(t *testing.T) {
	for name, end := range map[string]func(*server){
		"actor": func(s *server) { s.EndActor("ann") }, "tile": func(s *server) { s.EndTile(tileA) }} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.claim(tileA, 1)
			b := &bouncer{}
			var s *server
			s = w.guarded(b, func(c *Config) {
				c.Authenticate = func(r *http.Request) (session.Identity, error) {
					who, err := b.authenticate(r)
					if name == "actor" && err == nil && !b.revoked.Swap(true) { // between the game's decision and ours
						end(s)
					}
					return who, err
				}
				c.authorize = func(
					ctx context.Context, who session.Identity, tile fence.TileID, areas fence.AreaSet,
				) error {
					err := b.authorize(ctx, who, tile, areas)
					if name == "tile" && err == nil && !b.revoked.Swap(true) {
						end(s)
					}
					return err
				}
			})
			c := s.as(t, "ann")
			if name == "actor" {
				require.Equal(t, relaypb.CloseEnded, closeStatus(t, c))
				require.EqualValues(t, 2, b.asked.Load())
				return
			}
			send(t, c, subscribeTo(tileA.String()))
			require.Equal(t, relaypb.Code_CODE_FORBIDDEN, receive(t, c).GetError().GetCode())
			require.EqualValues(t, 2, b.askedTiles.Load())
			require.Zero(t, s.Stats().Subscriptions)
		})
	}
}

// A session lasts until it expires, for as long as it is refreshed, and nobody refreshes it but its actor.
func TestSessionsExpireAndAreRefreshed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.claim(tileA, 1)
	b := &bouncer{}
	b.lifetime.Store(int64(time.Hour))
	s := w.guarded(b, nil)
	c := s.as(t, "ann")
	left := receive(t, c).GetSession().GetExpiresInMs()
	require.Greater(t, left, uint64(3_590_000))
	require.LessOrEqual(t, left, uint64(3_600_000))
	send(t, c, refreshWith("bob"))
	require.Equal(t, relaypb.Code_CODE_UNAUTHENTICATED, receive(t, c).GetError().GetCode(), "another actor")
	send(t, c, refreshWith(""))
	require.Equal(t, relaypb.Code_CODE_UNAUTHENTICATED, receive(t, c).GetError().GetCode(), "no token")
	send(t, c, subscribeTo(tileA.String()))
	require.NotNil(t, receive(t, c).GetSync(), "the session goes on")
	b.lifetime.Store(1)
	send(t, c, refreshWith("ann"))
	require.Equal(t, relaypb.Code_CODE_UNAUTHENTICATED, receive(t, c).GetError().GetCode(), "it has expired")
	b.lifetime.Store(int64(50 * time.Millisecond))
	send(t, c, refreshWith("ann"))
	require.NotNil(t, receive(t, c).GetSession())
	require.Equal(t, relaypb.CloseExpired, closeStatus(t, c))

	b.lifetime.Store(0)
	forever := s.as(t, "ann")
	send(t, forever, refreshWith("ann"))
	require.Zero(t, receive(t, forever).GetSession().GetExpiresInMs(), "nothing came before the answer")
}

// Players are not told where tile servers are, unless the game wants it.
func TestOwnersAreHidden(t *testing.T) {
	for _, show := range []bool{false, true} {
		w := newWorld(t)
		w.claim(tileA, 1)
		s := w.guarded(&bouncer{}, func(c *Config) { c.ShowOwners = show })
		c := s.as(t, "ann")
		send(t, c, subscribeTo(tileA.String()))
		sync := receive(t, c).GetSync()
		require.EqualValues(t, 1, sync.GetOwnerEpoch())
		require.Equal(t, show, sync.GetOwnerContact() != "")
	}
}

// An actor does not take all places.
func TestConnectionsOfAnActorAreBounded(t *testing.T) {
	w := newWorld(t)
	s := w.guarded(&bouncer{}, func(c *Config) { c.Sessions.PerActor = 2 })
	first := s.as(t, "ann")
	s.as(t, "ann")
	_, status := s.try(t, "ann", "")
	require.Equal(t, http.StatusTooManyRequests, status)
	s.as(t, "bob")
	require.NoError(t, first.Close(websocket.StatusNormalClosure, ""))
	eventually(t, func() bool { return s.Stats().Clients == 2 }, "one is gone")
	eventually(t, func() bool {
		_, status := s.try(t, "ann", "")
		return status == http.StatusSwitchingProtocols
	}, "and another one may come")
}

// A relay whose places one actor has taken serves others: the actor that has most gives one.
func TestAFullRelayTakesFromTheHeaviest(t *testing.T) {
	w := newWorld(t)
	s := w.guarded(&bouncer{}, func(c *Config) { c.MaxClients = 4 })
	var mallory []*websocket.Conn
	for range 4 {
		mallory = append(mallory, s.as(t, "mallory"))
	}
	eventually(t, func() bool { return s.Stats().Clients == 4 }, "they are past their handshakes")
	s.as(t, "ann")
	require.Equal(t, relaypb.CloseTryLater, closeStatus(t, mallory[3]), "the newest")
	eventually(t, func() bool { return s.Stats().Clients == 4 }, "it is gone")
	_, status := s.try(t, "mallory", "")
	require.Equal(t, http.StatusServiceUnavailable, status, "and does not come back for it")
	eventually(t, func() bool {
		_, status := s.try(t, "bob", "")
		return status == http.StatusSwitchingProtocols
	}, "as for ann")
}

// An address takes neither all places nor all handshakes.
func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	w := newWorld(t)
	b := &bouncer{}
	s := w.guarded(b, func(c *Config) {
		c.Sessions.PerAddress = 3
		c.Sessions.Address = func(r *http.Request) string { return session.Token(r)[:1] }
	})
	for _, actor := range []string{"a1", "a2", "a3"} {
		s.as(t, actor)
	}
	_, status := s.try(t, "a4", "")
	require.Equal(t, http.StatusTooManyRequests, status)
	s.as(t, "b1")
	require.EqualValues(t, 4, b.asked.Load(), "the game is not asked about one too many")
}
