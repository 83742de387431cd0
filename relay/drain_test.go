package relay

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/relayclient"
)

func TestDrainTellsAndCloses(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	var told atomic.Int64
	var all []*watcher
	for range 10 {
		c := s.watch(t, func(c *relayclient.Config) {
			c.GoAway = func(within time.Duration) {
				if within == 50*time.Millisecond {
					told.Add(1)
				}
			}
		}, tileA)
		c.reaches(o)
		all = append(all, c)
	}
	require.NoError(t, s.Drain(context.Background()))
	for _, c := range all {
		<-c.Done()
		require.EqualValues(t, relaypb.CloseGoingAway, websocket.CloseStatus(c.Err()))
	}
	require.EqualValues(t, 10, told.Load())
	require.Zero(t, s.Stats().Clients)
	_, resp, err := websocket.Dial(context.Background(), s.url,
		&websocket.DialOptions{Subprotocols: []string{relaypb.Subprotocol}})
	require.Error(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.NoError(t, s.Drain(context.Background()), "again: nobody is left")
	require.True(t, s.life.reached(stopped), "Run has ended")
}

func TestDrainIsBoundedByItsContext(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.closeTimeout, cfg.writeTimeout = time.Hour, time.Hour
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	c := s.raw(t, relaypb.Subprotocol) // it never reads, and so never answers a close
	send(t, c, subscribeTo(tileA.String()))
	eventually(t, func() bool { return s.Stats().SyncsOut == 1 }, "it is served")
	for range 20 {
		o.publish(o.appendPayload(make([]byte, 64<<10), false))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Drain(ctx), context.DeadlineExceeded)
	eventually(t, func() bool { return s.Stats().Clients == 0 }, "it is cut off")
}

func TestRunEndsWithStuckClients(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.closeTimeout, cfg.writeTimeout = 100*time.Millisecond, time.Hour
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	c := s.raw(t, relaypb.Subprotocol)
	send(t, c, subscribeTo(tileA.String()))
	eventually(t, func() bool { return s.Stats().SyncsOut == 1 }, "it is served")
	for range 20 {
		o.publish(o.appendPayload(make([]byte, 64<<10), false))
	}
	live := s.watch(t, nil, tileA)
	live.reaches(o)
	start := time.Now()
	s.stop()
	require.Less(t, time.Since(start), 5*time.Second)
	<-live.Done()
	require.EqualValues(t, relaypb.CloseGoingAway, websocket.CloseStatus(live.Err()))
	require.Zero(t, w.fan.count(tileA), "the fan-out subscription has ended")
}

// balancer is one address with a relay behind it that can be exchanged.
type balancer struct {
	*httptest.Server
	mu sync.Mutex
	to http.Handler
}

func newBalancer(t *testing.T) *balancer {
	b := &balancer{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		to := b.to
		b.mu.Unlock()
		to.ServeHTTP(w, r)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *balancer) use(r *Relay) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to = r.Handler()
}

func TestDrainedClientsResumeOnAnotherRelay(t *testing.T) {
	w := newWorld(t)
	b := newBalancer(t)
	first, second := w.serve(still()), w.serve(still())
	first.url = "ws" + strings.TrimPrefix(b.URL, "http")
	b.use(first.Relay)
	o := w.claim(tileA, 1)
	o.tickOn(5)
	o.snapshot()
	var all []*watcher
	for range 10 {
		c := first.watch(t, func(c *relayclient.Config) { c.Reconnect = true }, tileA)
		c.reaches(o)
		all = append(all, c)
	}
	b.use(second.Relay)
	drained := make(chan error, 1)
	go func() { drained <- first.Drain(context.Background()) }()
	for range 20 {
		o.tickOn(1)
		time.Sleep(5 * time.Millisecond)
	}
	require.NoError(t, <-drained)
	for _, c := range all {
		c.reaches(o)
		require.EqualValues(t, 2, c.Stats().Connects)
		c.mu.Lock()
		require.Equal(t, 1, c.syncs, "only what was missed was sent")
		c.mu.Unlock()
	}
	require.Equal(t, 10, second.Stats().Clients)
}

// TestClientAheadOfItsNewRelay: what the client holds has not reached this relay yet.
func TestClientAheadOfItsNewRelay(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.earlyPause, cfg.CheckInterval = time.Hour, 100*time.Millisecond
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.snapshot()
	here := s.watch(t, nil, tileA)
	here.reaches(o)
	ask := func(p fence.Position) *relaypb.Sync {
		c := s.raw(t, relaypb.Subprotocol)
		send(t, c, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
			Held: []*relaypb.Held{{Tile: tileA.String(), Position: relaypb.FromPosition(p)}},
		}}})
		return receive(t, c).GetSync()
	}
	o.commit()
	o.commit() // not published here
	sync := ask(o.at)
	require.False(t, sync.GetReplace())
	require.Empty(t, sync.GetTail())
	here.reaches(o)

	invented := o.at
	invented.Seq++
	asked := s.hubs.open(tileA, "").earlyAsked
	require.True(t, ask(invented).GetReplace(), "the next comparison has shown that the store has no more")
	invented.Seq += 1000
	require.True(t, ask(invented).GetReplace())
	require.Equal(t, asked, s.hubs.open(tileA, "").earlyAsked, "asking again so soon costs the store nothing")
}

func TestLostConnectionsResume(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	o.snapshot()
	c := s.watch(t, func(c *relayclient.Config) { c.Reconnect = true }, tileA)
	c.reaches(o)
	for i := range 5 {
		for _, one := range s.allClients() {
			_ = one.wire.Close()
		}
		o.tickOn(3)
		eventually(t, func() bool { return c.Stats().Connects == uint64(i)+2 }, "it is back")
		c.reaches(o)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Equal(t, 1, c.syncs)
}

// TestDrainsAtOnceAndAfterTheEnd: each call returns when the relay has ended.
func TestDrainsAtOnceAndAfterTheEnd(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { assert.NoError(t, s.Drain(context.Background())) })
	}
	group.Wait()
	<-c.Done()
	s.stop() // the context is cancelled after the end
	require.NoError(t, s.Drain(context.Background()))

	idle, err := New(w.fan, w.log, Public, nil)
	require.NoError(t, err)
	require.NoError(t, idle.Drain(context.Background()))
	require.NoError(t, idle.Drain(context.Background()))
	require.ErrorIs(t, idle.Run(context.Background()), fence.ErrAlreadyRun)
}

// TestARelayThatStopsBlamesNobody: a read that its end cuts off is no failure of the store.
func TestARelayThatStopsBlamesNobody(t *testing.T) {
	w := newWorld(t)
	w.claim(tileA, 1)
	var said strings.Builder // written by the relay alone, read after it has stopped
	cfg := still()
	cfg.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := w.serve(cfg)
	reading := make(chan struct{})
	w.log.set(func(l *testLog) {
		l.err = errDown
		l.before = func(string) {
			close(reading)
			<-s.life.base.Done()
		}
	})
	s.watch(t, nil, tileA)
	<-reading
	s.stop()
	require.Empty(t, said.String())
	require.Zero(t, s.Stats().RepairsFailed)
}
