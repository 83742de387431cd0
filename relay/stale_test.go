package relay

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// beside is the same store seen by another relay, over links of its own that a test can cut.
func (w *world) beside() *world {
	return &world{t: w.t, store: w.store, log: &testLog{Log: w.log.Log},
		fan: &testFanout{subs: map[fence.TileID]map[int]func([]byte){}}}
}

func (w *world) cut(err error) {
	w.log.set(func(l *testLog) { l.err = err })
	w.fan.mu.Lock()
	defer w.fan.mu.Unlock()
	w.fan.err = err
}

// staleEvents collects what a client says of relays that are behind it, and checks that it is never shown less than
// it was shown before.
type staleEvents struct {
	mu  sync.Mutex
	all []relayclient.Stale
}

func (e *staleEvents) edit(t *testing.T) func(*relayclient.Config) {
	return func(c *relayclient.Config) {
		c.Reconnect = true
		sync, shown := c.Sync, fence.Epoch(0)
		c.Sync = func(y relayclient.Sync) {
			if y.Position.Epoch < shown {
				t.Errorf("shown %s after epoch %d", y.Position, shown)
			}
			shown = y.Position.Epoch
			sync(y)
		}
		c.Stale = func(s relayclient.Stale) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.all = append(e.all, s)
		}
	}
}

func (e *staleEvents) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.all)
}

// cutOffRelay is a tile at 2/45, a client that holds it, and a relay that was cut off at 1/4. The client has lost its
// relay and its next connection goes to the other one.
func cutOffRelay(t *testing.T) (w, cutOff *world, o *owner, old *server, c *watcher, events *staleEvents, b *balancer) {
	w = newWorld(t)
	cutOff = w.beside()
	cfg := quick()
	cfg.linger = time.Hour
	current := w.serve(quick())
	old = cutOff.serve(cfg)
	o = w.claim(tileA, 1)
	o.snapshot()
	o.tickOn(3)
	first := old.watch(t, nil, tileA)
	first.reaches(o)
	require.Equal(t, fence.Seq(4), o.at.Seq)
	cutOff.cut(errDown)

	o = w.claim(tileA, 2)
	o.tickOn(40)
	require.Equal(t, "2/45", o.at.String()[:4])
	b = newBalancer(t)
	b.use(current.Relay)
	events = &staleEvents{}
	current.url = "ws" + strings.TrimPrefix(b.URL, "http")
	c = current.watch(t, events.edit(t), tileA)
	c.reaches(o)
	b.use(old.Relay)
	current.stop()
	return w, cutOff, o, old, c, events, b
}

func TestClientOfACutOffRelayKeepsWhatItHolds(t *testing.T) {
	_, cutOff, o, old, c, events, _ := cutOffRelay(t)
	eventually(t, func() bool { return events.count() > staleTries },
		"the client says that the relay is behind, and tries again")
	events.mu.Lock()
	require.Equal(t, relayclient.Stale{Tile: tileA, Floor: 2, Attempt: 1}, events.all[0],
		"the relay says that it is behind")
	events.mu.Unlock()
	c.reaches(o)
	require.NotZero(t, old.Stats().Stale)
	require.Greater(t, c.Stats().Connects, uint64(2), "it looks for another relay")

	cutOff.cut(nil) // the relay sees the store again
	eventually(t, func() bool { return old.Stats().Subscriptions == 2 && c.live(old) },
		"the relay catches up and serves the client")
	o.tickOn(1)
	c.reaches(o)
}

// staleTries is above the number of requests after which a client leaves a relay.
const staleTries = 4

// live reports whether the relay sends every client of the tile its frames.
func (w *watcher) live(s *server) bool {
	h := s.hubs.open(tileA, "")
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subs {
		if !s.live {
			return false
		}
	}
	return true
}

func TestClientLeavesACutOffRelayForAnother(t *testing.T) {
	w, _, o, _, c, events, b := cutOffRelay(t)
	eventually(t, func() bool { return events.count() > 0 }, "the client says that the relay is behind")
	b.use(w.serve(quick()).Relay)
	o.tickOn(1)
	c.reaches(o)
}

// TestClientIsNotSentBackByACutOffRelay: the same within an epoch. Only the store can say that its history ends before
// what the client holds, and a relay that cannot read it does not know.
func TestClientIsNotSentBackByACutOffRelay(t *testing.T) {
	for _, ahead := range []int{1, 50} {
		w := newWorld(t)
		cutOff := w.beside()
		cfg := quick()
		cfg.linger = time.Hour
		old, current := cutOff.serve(cfg), w.serve(quick())
		o := w.claim(tileA, 1)
		o.snapshot()
		o.tickOn(3)
		first := old.watch(t, nil, tileA)
		first.reaches(o)
		cutOff.cut(errDown)
		o.tickOn(ahead)

		b := newBalancer(t)
		b.use(current.Relay)
		current.url = "ws" + strings.TrimPrefix(b.URL, "http")
		var events staleEvents
		c := current.watch(t, events.edit(t), tileA)
		c.reaches(o)
		b.use(old.Relay)
		current.stop()
		eventually(t, func() bool { return events.count() > staleTries },
			"the client is told that the relay is behind, and tries again")
		c.reaches(o)
		c.mu.Lock()
		require.Equal(t, 1, c.syncs, "it was never sent back")
		c.mu.Unlock()

		cutOff.cut(nil)
		eventually(t, func() bool { return old.Stats().Subscriptions == 2 && c.live(old) },
			"the relay catches up and serves the client")
		o.tickOn(1)
		c.reaches(o)
	}
}

// TestPositionIsAFloor: the epoch of the position protects a client that names no floor.
func TestPositionIsAFloor(t *testing.T) {
	_, _, o, old, _, _, _ := cutOffRelay(t)
	conn := old.raw(t, relaypb.Subprotocol)
	held := &relaypb.Held{Tile: tileA.String(), Position: relaypb.FromPosition(o.at)}
	send(t, conn, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{
		Subscribe: &relaypb.Subscribe{Held: []*relaypb.Held{held}},
	}})
	require.Equal(t, relaypb.Code_CODE_STALE, receive(t, conn).GetError().GetCode())
}

func TestTakeoverWakesClientsThatWaitForIt(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.tickOn(3)
	first := s.watch(t, nil, tileA)
	first.reaches(o)
	w.log.set(func(l *testLog) { l.err = errDown })
	conn := s.raw(t, relaypb.Subprotocol)
	held := &relaypb.Held{Tile: tileA.String(), EpochFloor: 2}
	send(t, conn, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{
		Subscribe: &relaypb.Subscribe{Held: []*relaypb.Held{held}},
	}})
	require.Equal(t, relaypb.Code_CODE_STALE, receive(t, conn).GetError().GetCode())
	next := &owner{w: w, tile: tileA, epoch: 2, at: o.at, tick: o.tick, state: o.state}
	frame := next.append(true)
	w.log.set(func(l *testLog) { l.err = nil }) // which no comparison notices
	next.publish(frame)
	m := receive(t, conn)
	require.Equal(t, next.at, m.GetSync().GetPosition().Fence())
}

// TestInventedFloorAsksTheStoreSeldom: any client can claim any floor.
func TestInventedFloorAsksTheStoreSeldom(t *testing.T) {
	inBubble(t, &Config{CheckInterval: time.Hour, tuning: tuning{markInterval: time.Hour}}, func(w *world, r *Relay) {
		o := w.claim(tileA, 1)
		o.tickOn(3)
		c, s := r.testJoin(tileA)
		time.Sleep(time.Second)
		c.drain()
		before := w.log.reads.Load()
		for range 1000 {
			s.resync(fence.AreaSet{}, 0, clientState{floor: fence.MaxNumber})
			c.drain()
			time.Sleep(30 * time.Millisecond) // longer than the jitter of a repair
			c.drain()
		}
		require.LessOrEqual(t, w.log.reads.Load()-before, int64(31), "once a second")
		require.Zero(t, r.Stats().Stale, "it says nothing about the relay")
		require.InDelta(t, 30, r.Stats().Unknown, 2, "each read answers")
		s.resync(fence.AreaSet{}, 0, clientState{floor: 1})
		require.Equal(t, 1, c.drain(), "a true floor is served")
	})
}

// TestAClaimTooSoonWaitsForItsFrame: an invented position has just cost the tile its read, and a client comes from
// another relay, which had the last frame sooner. It is not sent back.
func TestAClaimTooSoonWaitsForItsFrame(t *testing.T) {
	inBubble(t, &Config{CheckInterval: time.Hour, tuning: tuning{markInterval: time.Hour}}, func(w *world, r *Relay) {
		o := w.claim(tileA, 1)
		o.tickOn(3)
		c, s := r.testJoin(tileA)
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 1, c.drain())
		invented := o.at
		invented.Seq += 1000
		s.resync(fence.AreaSet{}, 0, clientState{at: invented})
		require.Zero(t, c.drain())
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 1, c.drain(), "the store has no more")

		late := o.commit()
		s.resync(fence.AreaSet{}, 0, clientState{at: o.at})
		require.Zero(t, c.drain())
		time.Sleep(100 * time.Millisecond)
		require.Zero(t, c.drain())
		o.publish(late)
		require.Equal(t, 1, c.drain())
		require.True(t, s.live)
	})
}
