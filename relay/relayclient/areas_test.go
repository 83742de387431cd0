package relayclient_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// divided is n batches of a divided tile: batch i has one event in area 0, one in area 1 and one in area 2.
func divided(n int) (all []fence.Entry) {
	var at fence.Position
	for i := range n {
		var list []byte
		for a := range 3 {
			list = fence.AppendPart(list, fence.Area(a), []byte{byte(i + 1)})
		}
		e := fence.NewEntry(fence.Entry{Tile: tile, Kind: fence.KindBatch, Payload: list, Tick: fence.Tick(i + 1),
			Position: fence.Position{Epoch: 1, Seq: at.Seq + 1}, Prev: at})
		all, at = append(all, e), e.Position
	}
	return all
}

// seen collects what the application is given: each event by its area.
type seen struct {
	mu     sync.Mutex
	events map[fence.Area][]byte
	opened [][]fence.Area
}

func (s *seen) config(c *relayclient.Config) {
	c.Sync = func(y relayclient.Sync) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opened = append(s.opened, y.Areas.List())
		for a := range s.events {
			if y.Areas.Has(a) {
				delete(s.events, a)
			}
		}
	}
	c.Frame = func(e fence.Entry) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for p := range fence.Parts(e.Payload) {
			s.events[p.Area] = append(s.events[p.Area], p.Content...)
		}
	}
}

// wait until the application has seen n events of area 0.
func (s *seen) wait(t *testing.T, n int) {
	t.Helper()
	waittest.Until(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.events[0]) == n
	}, 5*time.Second, time.Millisecond)
}

// frames are batches as a client that watches some areas is sent them.
func frames(h []fence.Entry, areas ...fence.Area) (all []*relaypb.Frame) {
	for i := range h {
		w := h[i].Watched(fence.Areas(areas...))
		all = append(all, relaypb.FromEntry(&w))
	}
	return all
}

// TestAnAreaThatWasLeftMeanwhileDoesNotCount: a client leaves an area and comes back while the answer to its first
// request is on the way. The relay has sent batches without it in between.
func TestAnAreaThatWasLeftMeanwhileDoesNotCount(t *testing.T) {
	s := newScript(t)
	got := &seen{events: map[fence.Area][]byte{}}
	v, p := view(s, s.url, got.config)
	h := divided(4)
	p.sync(&relaypb.Sync{Replace: true, Areas: []uint32{0, 2}, Tail: frames(h[:1], 2),
		Position: relaypb.FromPosition(h[0].Position)})
	got.wait(t, 1)
	require.NoError(t, v.Watch(t.Context(), tile, 2))
	require.EqualValues(t, 1, p.receive().GetWatch().GetNumber())
	for i, area := range []fence.Area{1, 2, 1} {
		require.NoError(t, v.Watch(t.Context(), tile, area))
		ask := p.receive().GetWatch()
		require.EqualValues(t, i+2, ask.GetNumber())
		require.Equal(t, []uint32{0, uint32(area)}, ask.GetAreas())
	}
	open := func(n int, watch uint32, area uint32) {
		p.sync(&relaypb.Sync{Opens: true, Watch: watch, Areas: []uint32{area}, Tail: frames(h[:n], fence.Area(area)),
			Position: relaypb.FromPosition(h[n-1].Position)})
	}
	open(1, 2, 1)                            // the answer to the first request
	for _, f := range frames(h[1:2], 1, 2) { // before the second
		f.Payload, f.Rest = frames(h[1:2], 1)[0].Payload, frames(h[1:2], 1)[0].Rest
		p.send(&relaypb.ServerMessage{Tile: tile.String(), Body: &relaypb.ServerMessage_Frame{Frame: f}})
	}
	open(2, 3, 2)
	p.send(&relaypb.ServerMessage{Tile: tile.String(),
		Body: &relaypb.ServerMessage_Frame{Frame: frames(h[2:3], 2)[0]}}) // nothing of area 1
	open(3, 4, 1)
	p.send(&relaypb.ServerMessage{Tile: tile.String(), Body: &relaypb.ServerMessage_Frame{Frame: frames(h[3:], 1)[0]}})
	got.wait(t, 4)
	got.mu.Lock()
	defer got.mu.Unlock()
	require.Equal(t, []byte{1, 2, 3, 4}, got.events[1], "all of it, once")
	require.Equal(t, [][]fence.Area{{0, 2}, {1}}, got.opened)
	require.Zero(t, v.Stats().Gaps)
}

// TestAreasOpenedElsewhere: areas that are opened at another position than the client holds are not taken up.
func TestAreasOpenedElsewhere(t *testing.T) {
	s := newScript(t)
	got := &seen{events: map[fence.Area][]byte{}}
	v, p := view(s, s.url, got.config)
	require.NoError(t, v.Watch(t.Context(), tile, 2))
	p.receive()
	h := divided(3)
	p.sync(&relaypb.Sync{Replace: true, Watch: 1, Areas: []uint32{0, 2}, Tail: frames(h[:1], 2),
		Position: relaypb.FromPosition(h[0].Position)})
	require.NoError(t, v.Watch(t.Context(), tile, 1, 2))
	p.receive()
	p.sync(&relaypb.Sync{Opens: true, Watch: 2, Areas: []uint32{1}, Tail: frames(h, 1),
		Position: relaypb.FromPosition(h[2].Position)})
	ask := p.receive().GetResync()
	require.NotNil(t, ask)
	require.Nil(t, ask.GetPosition(), "it does not hold all that it watches")
	got.mu.Lock()
	defer got.mu.Unlock()
	require.NotContains(t, got.events, fence.Area(1))
}

// TestReconnectWhileWatchesChange: a player who moves more often than a handshake takes still reconnects.
func TestReconnectWhileWatchesChange(t *testing.T) {
	var handshakes atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := handshakes.Add(1)
		time.Sleep(60 * time.Millisecond) // TLS and the way
		if r.URL.Query().Has(relaypb.SubscribeParam) {
			w.Header().Set(relaypb.SubscribedHeader, "1")
		}
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{relaypb.Subprotocol}})
		if err != nil {
			return
		}
		defer c.CloseNow()
		if n == 1 {
			return
		}
		for {
			if _, _, err := c.Read(context.Background()); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	id := fence.TileID(0x85283473fffffff)
	cfg := &relayclient.Config{Tiles: []fence.TileID{id}, Reconnect: true, BackoffMin: 20 * time.Millisecond,
		BackoffMax: 40 * time.Millisecond}
	c, err := relayclient.Dial(context.Background(), "ws"+strings.TrimPrefix(server.URL, "http"), cfg)
	require.NoError(t, err)
	defer c.Close()
	for i, start := 0, time.Now(); time.Since(start) < 4*time.Second && c.Stats().Connects < 2; i++ {
		_ = c.Watch(context.Background(), id, fence.Area(1+i%3))
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%d handshakes, %d connections", handshakes.Load(), c.Stats().Connects)
	require.EqualValues(t, 2, c.Stats().Connects)
}
