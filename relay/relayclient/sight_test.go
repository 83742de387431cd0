package relayclient_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
)

// The two tiles of a strait. Their shores, area 1 of each, touch.
const (
	south, north fence.TileID = 1, 2
	shore        fence.Area   = 1
	inland       fence.Area   = 2
)

// move is an event: in an area a ship enters, or leaves for a tile, or for another area (to is zero).
type move struct {
	area  fence.Area
	ship  string
	hop   uint64
	to    fence.TileID
	enter bool
}

func (m move) event() []byte {
	return fmt.Appendf(nil, "%d %s %d %d %t", m.area, m.ship, m.hop, m.to, m.enter)
}

func readMove(event []byte) (m move) {
	_, _ = fmt.Sscan(string(event), &m.area, &m.ship, &m.hop, &m.to, &m.enter)
	return m
}

// strait commits to both tiles, and publishes what it commits.
type strait struct {
	t     *testing.T
	store *memfence.Store
	fan   fanout.Publisher
	at    map[fence.TileID]fence.Position
}

func (s *strait) begin(id fence.TileID, ships ...move) {
	var list []byte
	for _, area := range []fence.Area{shore, inland} {
		var part []string
		for _, m := range ships {
			if m.area == area {
				part = append(part, string(m.event()))
			}
		}
		list = fence.AppendPart(list, area, []byte(strings.Join(part, "\n")))
	}
	r, err := s.store.Rebase(s.t.Context(), fence.Rebase{Tile: id, Epoch: 1, Contact: "owner:1", Seq: 1,
		Blob: stream.AppendDivided(nil, list, nil)})
	require.NoError(s.t, err)
	s.at[id] = r.Position
}

func (s *strait) commit(id fence.TileID, moves ...move) {
	s.t.Helper()
	b := stream.Batch{}
	for _, m := range moves {
		b.Events = append(b.Events, m.event())
	}
	b.Divide(func(event []byte) fence.Area { return readMove(event).area })
	payload, private, err := b.Encode()
	require.NoError(s.t, err)
	c := fence.Commit{Tile: id, Epoch: 1, Contact: "owner:1", Prev: s.at[id], Tick: fence.Tick(s.at[id].Seq),
		Payload: payload, Private: private}
	r, err := s.store.Commit(s.t.Context(), c)
	require.NoError(s.t, err)
	s.at[id] = r.Position
	e := c.Entry()
	_, err = s.fan.Publish(s.t.Context(), []fanout.Message{{Tile: id, Data: e.Frame}})
	require.NoError(s.t, err)
}

// sailor is a client that sees its player's tile, and the shore of the other.
type sailor struct {
	*relayclient.Client
	t  *testing.T
	mu sync.Mutex // as frames are drawn between the calls of a client

	world  relayclient.Crossings[string]
	where  map[fence.TileID]map[string]fence.Area // of each tile alone
	areas  map[fence.TileID]fence.AreaSet         // that are watched
	always map[string]bool                        // ships that were seen, and may not vanish
	frames int
}

func (s *sailor) look(id fence.TileID, areas ...fence.Area) {
	s.areas[id] = fence.Areas(areas...)
	assert.NoError(s.t, s.Watch(s.t.Context(), id, areas...))
}

// hide hides what a tile has out of sight.
func (s *sailor) hide(id fence.TileID) {
	for ship, area := range s.where[id] {
		if !s.areas[id].Has(area) {
			delete(s.where[id], ship)
		}
	}
	s.world.Restore(id, func(ship string) bool { _, in := s.where[id][ship]; return in })
}

func (s *sailor) sync(y relayclient.Sync) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ship, area := range s.where[y.Tile] {
		if y.Areas.Has(area) {
			delete(s.where[y.Tile], ship)
		}
	}
	var all []move
	for p := range fence.Parts(y.Snapshot.Blob) {
		for line := range strings.Lines(string(p.Content)) {
			m := readMove([]byte(line))
			s.where[y.Tile][m.ship] = m.area
			all = append(all, m)
		}
	}
	s.world.Restore(y.Tile, func(ship string) bool { _, in := s.where[y.Tile][ship]; return in })
	for _, m := range all {
		s.world.Enter(y.Tile, m.ship, m.hop, "")
	}
	s.draw()
}

func (s *sailor) frame(e fence.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := stream.DecodeBatch(&e)
	assert.NoError(s.t, err)
	for _, event := range b.Events {
		switch m := readMove(event); {
		case m.enter:
			s.where[e.Tile][m.ship] = m.area
			s.world.Enter(e.Tile, m.ship, m.hop, "")
		case m.to != 0:
			delete(s.where[e.Tile], m.ship)
			s.world.Leave(e.Tile, m.ship, m.hop, m.to)
		case s.where[e.Tile][m.ship] == m.area:
			s.where[e.Tile][m.ship] = 0xff // out of sight, unless it enters
		}
	}
	s.hide(e.Tile)
	s.draw()
}

// draw draws a frame: what was seen once is in it.
func (s *sailor) draw() {
	s.frames++
	for ship := range s.always {
		_, drawn := s.world.Get(ship)
		assert.True(s.t, drawn, "%s in frame %d", ship, s.frames)
	}
}

// sees waits until some ships are drawn, and no other.
func (s *sailor) sees(ships ...string) {
	s.t.Helper()
	var drawn []string
	defer func() {
		if s.t.Failed() {
			s.t.Log("drawn: ", drawn)
		}
	}()
	waittest.Until(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		drawn = nil
		for ship := range s.world.All() {
			drawn = append(drawn, ship)
		}
		return assert.ElementsMatch(new(testing.T), ships, drawn)
	}, 5*time.Second, time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames++
}

// TestAPlayerSeesAcrossTheBorder: near a border a player sees the other shore, and no more of that tile; ships that
// cross are drawn in every frame, and so is the player, who goes on to where it did not look.
func TestAPlayerSeesAcrossTheBorder(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	store, fan := memfence.New(), memfanout.New()
	r, err := relay.New(fan, memstream.New(store), relay.Public, nil)
	require.NoError(t, err)
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	defer func() { cancel(); <-ran }()
	s := &strait{t: t, store: store, fan: fan, at: map[fence.TileID]fence.Position{}}
	s.begin(south, move{shore, "ann", 0, 0, true}, move{inland, "faraway-south", 0, 0, true})
	s.begin(north, move{shore, "bob", 0, 0, true}, move{inland, "faraway-north", 0, 0, true})

	v := &sailor{t: t, where: map[fence.TileID]map[string]fence.Area{south: {}, north: {}},
		areas: map[fence.TileID]fence.AreaSet{}, always: map[string]bool{}}
	v.Client, err = relayclient.Dial(ctx, server.URL, &relayclient.Config{Sync: v.sync, Frame: v.frame})
	require.NoError(t, err)
	defer v.Close()
	v.world.Join = func(id fence.TileID) { v.look(id) }
	v.world.Quit = func(id fence.TileID) { v.look(id, shore); v.hide(id) }
	v.mu.Lock()
	v.world.Follow("ann")
	v.world.Crossed(south)
	v.mu.Unlock()
	v.sees("ann", "faraway-south")
	v.mu.Lock()
	v.always["ann"] = true
	for _, id := range []fence.TileID{south, north} { // it is near the border: from now on it sees both shores
		v.world.Watch(id, shore)
	}
	v.look(north, shore)
	v.mu.Unlock()
	v.sees("ann", "faraway-south", "bob")
	v.mu.Lock()
	v.always["bob"] = true
	v.mu.Unlock()

	// Bob crosses; what is committed in the other tile is seen before it has left, or after.
	s.commit(south, move{shore, "bob", 1, 0, true})
	s.commit(north, move{shore, "bob", 0, south, false})
	s.commit(south, move{shore, "bob", 1, north, false})
	s.commit(north, move{shore, "bob", 2, 0, true})
	v.sees("ann", "faraway-south", "bob")

	// Another comes out of sight there, and is gone into the country again.
	s.commit(north, move{inland, "faraway-north", 0, 0, false}, move{shore, "faraway-north", 0, 0, true})
	v.sees("ann", "faraway-south", "bob", "faraway-north")
	s.commit(north, move{shore, "faraway-north", 0, 0, false}, move{inland, "faraway-north", 0, 0, true})
	v.sees("ann", "faraway-south", "bob")

	// The player goes inland: it sees all of the north, and of the south what is on the shore.
	s.commit(south, move{shore, "eve", 0, 0, true})
	v.sees("ann", "faraway-south", "bob", "eve")
	v.mu.Lock()
	v.always["eve"] = true
	v.mu.Unlock()
	s.commit(south, move{shore, "ann", 0, north, false})
	s.commit(north, move{inland, "ann", 1, 0, true})
	v.sees("ann", "bob", "faraway-north", "eve")
	seen, _ := v.world.Get("ann")
	require.Equal(t, relayclient.Sighting[string]{Tile: north, Hop: 1}, seen)
	require.Zero(t, v.Stats().Gaps)
}
