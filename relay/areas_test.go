package relay

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// dividedWorld is a world whose tiles have areas, a relay, and an owner of tileA with a snapshot and a tail.
func dividedWorld(t *testing.T) (*world, *server, *owner) {
	w := newWorld(t)
	w.areas = 8
	cfg := still()
	cfg.InboundRate = 100_000
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.tickOn(5)
	o.snapshot()
	o.tickOn(5)
	return w, s, o
}

// TestAreasFollowAMove: a client that moves through areas sees each as the owner has it, and is never sent again what
// it holds.
func TestAreasFollowAMove(t *testing.T) {
	_, s, o := dividedWorld(t)
	w := s.watch(t, nil)
	w.look(tileA, 1, 2)
	w.reaches(o)
	for range 60 {
		o.tickOn(rand.IntN(3))
		from := fence.Area(1 + rand.IntN(5))
		w.look(tileA, from, from+1, from+2)
		if rand.IntN(4) == 0 {
			o.snapshot()
		}
		o.tickOn(1)
		if rand.IntN(3) == 0 {
			w.reaches(o)
		}
	}
	w.reaches(o)
	require.Equal(t, 1, w.syncs, "everything but the first Sync is an opening")
	require.Greater(t, w.opened, 10)
	st := s.Stats()
	require.GreaterOrEqual(t, int(st.Opened), w.opened, "one whose areas were left meanwhile is ignored")
	require.Zero(t, w.Stats().Gaps)
	require.Zero(t, st.Gaps)
	w.look(tileA) // the whole tile again
	w.reaches(o)
}

// TestAreasAreLeftOut: what a client does not watch does not reach it, in frames, tails or snapshots.
func TestAreasAreLeftOut(t *testing.T) {
	_, s, o := dividedWorld(t)
	var got []fence.Area
	check := func(list []byte) {
		for p := range fence.Parts(list) {
			got = append(got, p.Area)
		}
	}
	w := s.watch(t, func(c *relayclient.Config) {
		sync, frame := c.Sync, c.Frame
		c.Sync = func(y relayclient.Sync) { check(y.Snapshot.Blob); sync(y) }
		c.Frame = func(e fence.Entry) { check(e.Payload); frame(e) }
	})
	w.look(tileA, 3, 5)
	w.reaches(o)
	all := s.watch(t, nil, tileA)
	all.reaches(o)
	o.tickOn(40)
	w.reaches(o)
	all.reaches(o)
	require.NoError(t, w.Close())
	require.Contains(t, got, fence.Area(0))
	require.Contains(t, got, fence.Area(3))
	for _, a := range got {
		require.Contains(t, []fence.Area{0, 3, 5}, a)
	}
	require.Less(t, w.Stats().Bytes, all.Stats().Bytes)
}

// TestAreasAfterAReconnect: the client names the position that it holds only if it holds all that it watches.
func TestAreasAfterAReconnect(t *testing.T) {
	_, s, o := dividedWorld(t)
	w := s.watch(t, func(c *relayclient.Config) { c.Reconnect = true })
	w.look(tileA, 1)
	w.reaches(o)
	for range 20 {
		for _, c := range s.allClients() {
			_ = c.wire.Close()
		}
		w.look(tileA, fence.Area(1+rand.IntN(7)), fence.Area(1+rand.IntN(7)))
		o.tickOn(1 + rand.IntN(3))
		w.reaches(o)
	}
}

// TestAreasChangeWhileItReconnects: a Watch that meets a new connection comes after the Subscribe of that connection.
func TestAreasChangeWhileItReconnects(t *testing.T) {
	t.Parallel()
	_, s, o := dividedWorld(t)
	for range 150 {
		w := s.watch(t, func(c *relayclient.Config) { c.Reconnect, c.BackoffMax = true, time.Millisecond })
		w.look(tileA, 1)
		eventually(t, func() bool { _, ok := w.Position(tileA); return ok }, "the first Sync")
		for _, c := range s.allClients() {
			_ = c.wire.Close()
		}
		until := time.Now().Add(time.Duration(rand.IntN(4000)) * time.Microsecond)
		for time.Now().Before(until) || w.Stats().Connects < 2 {
			w.look(tileA, fence.Area(1+rand.IntN(7)))
		}
		o.tickOn(1)
		w.reaches(o)
		require.NoError(t, w.Close())
	}
}

// TestAreasOfAnUndividedTile: all of it is area 0.
func TestAreasOfAnUndividedTile(t *testing.T) {
	w, s, _ := dividedWorld(t)
	w.areas = 0
	other := w.claim(tileB, 1)
	other.snapshot()
	c := s.watch(t, nil)
	c.look(tileB, 4)
	eventually(t, func() bool { at, ok := c.Position(tileB); return ok && at == other.at }, "the Sync")
	c.look(tileB, 5)
	eventually(t, func() bool { return s.Stats().Opened == 1 }, "nothing to open, but an answer")
	state, _ := c.state(tileB)
	require.Equal(t, other.state, state)
}

// TestAreasThatAreNone: a number that is no area closes the connection, and a tile must be subscribed before Watch.
func TestAreasThatAreNone(t *testing.T) {
	_, s, _ := dividedWorld(t)
	for name, m := range map[string]*relaypb.ClientMessage{
		"watch": {Body: &relaypb.ClientMessage_Watch{
			Watch: &relaypb.Watch{Tile: tileA.String(), Areas: []uint32{256}}}},
		"held": {Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
			Held: []*relaypb.Held{{Tile: tileA.String(), Areas: []uint32{1, 1 << 31}}}}}},
	} {
		c := s.raw(t, relaypb.Subprotocol)
		send(t, c, m)
		require.Equal(t, relaypb.Code_CODE_MALFORMED, receive(t, c).GetError().GetCode(), name)
	}
	c := s.raw(t, relaypb.Subprotocol)
	send(t, c, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Watch{Watch: &relaypb.Watch{Tile: tileA.String()}}})
	require.Equal(t, relaypb.Code_CODE_NOT_SUBSCRIBED, receive(t, c).GetError().GetCode())
}

// TestAreasShortenTheTail: a client that changes its areas again and again makes the relay look for a newer snapshot.
func TestAreasShortenTheTail(t *testing.T) {
	_, s, o := dividedWorld(t)
	c := s.watch(t, nil)
	c.look(tileA, 1)
	c.reaches(o)
	o.tickOn(2 * openedTail)
	o.snapshot()
	c.reaches(o)
	h := s.hubs.find(tileA)
	tail := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.view.tail)
	}
	require.Greater(t, tail(), openedTail)
	area := fence.Area(1)
	eventually(t, func() bool {
		area = area%7 + 1
		c.look(tileA, area)
		return tail() == 0
	}, "the snapshot is found")
	o.tickOn(1)
	c.reaches(o)
}

// TestAreasOfATileWithoutASnapshotCostFewReads: openings do not make the relay ask for a snapshot each time.
func TestAreasOfATileWithoutASnapshotCostFewReads(t *testing.T) {
	w := newWorld(t)
	w.areas = 8
	cfg := still()
	cfg.InboundRate = 100_000
	var reads atomic.Int64
	cfg.Hooks.Repaired = func(i RepairInfo) {
		if i.Kind == "snapshot" {
			reads.Add(1)
		}
	}
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.tickOn(2 * openedTail)
	c := s.watch(t, nil)
	c.look(tileA, 1)
	c.reaches(o)
	for i := range uint64(40) {
		c.look(tileA, fence.Area(1+(i+1)%7))
		eventually(t, func() bool { return s.Stats().Opened == i+1 }, "the area is opened")
	}
	require.LessOrEqual(t, reads.Load(), int64(8))
}

// TestAreasWithoutASnapshot: a relay that has dropped a long tail cannot open areas, and gives everything anew.
func TestAreasWithoutASnapshot(t *testing.T) {
	w := newWorld(t)
	w.areas = 8
	cfg := still()
	cfg.TailFrames = 8
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	c := s.watch(t, nil)
	c.look(tileA, 1)
	c.reaches(o)
	for range 12 {
		o.tickOn(1)
		time.Sleep(time.Millisecond)
	}
	c.reaches(o)
	c.look(tileA, 1, 2)
	c.reaches(o)
	require.Equal(t, 2, c.syncs)
}
