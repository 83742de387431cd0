package relay

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// Clients that say nothing and read nothing, each of which is sent a Sync of its own, do not take more than the relay
// has for them, and a client that reads is served among them.
func TestSilentClientsDoNotHoldSyncs(t *testing.T) {
	w := newWorld(t)
	const size, limit = 512 << 10, 4 << 20
	cfg := still()
	cfg.RelaySyncBytes, cfg.syncStall = limit, 50*time.Millisecond
	cfg.TailFrames = 1 << 10
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.appendPayload(make([]byte, size), false)
	o.snapshot()
	var most atomic.Int64
	s.watch(t, nil, tileA).reaches(o)
	for i := range 60 {
		c := s.raw(t, relaypb.Subprotocol)
		send(t, c, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
			Held: []*relaypb.Held{{Tile: tileA.String(), Areas: []uint32{uint32(i + 1)}}}}}}) // a Sync of its own
		s.backlog.mu.Lock()
		held := int64(s.backlog.bytes)
		s.backlog.mu.Unlock()
		most.Store(max(most.Load(), held, s.hubs.kept.bytes.Load()))
	}
	honest := s.watch(t, func(c *relayclient.Config) {
		c.Reconnect, c.BackoffMin = true, time.Millisecond // on a busy machine it may be too slow once
	}, tileA)
	o.tickOn(3)
	honest.reaches(o)
	eventually(t, func() bool { return s.Stats().SlowCloses > 0 }, "those that stall are closed")
	assert.LessOrEqual(t, most.Load(), int64(limit+size*3/2*runtime.GOMAXPROCS(0)))
	assert.Positive(t, most.Load())
}

// Clients that do not read, each of which watches other areas and so is sent other bytes, do not pile up frames.
func TestSilentClientsDoNotHoldFrames(t *testing.T) {
	w := newWorld(t)
	const size, limit, silent = 16 << 10, 1 << 20, 40
	cfg := still()
	cfg.RelayQueueBytes = limit
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	honest := s.watch(t, nil, tileA)
	honest.reaches(o)
	for i := range silent {
		c := s.raw(t, relaypb.Subprotocol)
		send(t, c, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
			Held: []*relaypb.Held{{Tile: tileA.String(), Areas: []uint32{0, uint32(i + 1)}}}}}})
	}
	eventually(t, func() bool { return s.Stats().SyncsOut == silent+1 }, "all watch")
	most := int64(0)
	for range 300 {
		o.publish(o.appendPayload(fence.AppendPart(nil, 0, make([]byte, size)), false))
		most = max(most, s.backlog.frames.Load())
	}
	assert.LessOrEqual(t, most, int64(limit+(silent+1)*(size+100)))
	assert.Greater(t, most, int64(limit), "the limit was reached")
	o.tickOn(1)
	honest.reaches(o)
	s.stop()
	require.Zero(t, s.backlog.frames.Load(), "all that was counted in was counted out")
	require.Zero(t, s.backlog.bytes)
	require.Zero(t, s.hubs.kept.bytes.Load())
}

// The books of the backlog balance, whatever clients do.
func TestBacklogBooks(t *testing.T) {
	b := newBacklog(&Config{Limits: Limits{RelaySyncBytes: 100, RelayQueueBytes: 10}})
	c, d := &client{}, &client{}
	one, two := make([]byte, 60), make([]byte, 50)
	now := time.Now()
	require.True(t, b.room(now))
	b.hold(c, one)
	b.hold(d, one)
	require.Equal(t, 60, b.bytes, "shared")
	b.hold(d, two)
	b.release(c, one)
	b.release(c, one)
	require.Equal(t, 110, b.bytes)
	b.release(d, one)
	require.Equal(t, 50, b.bytes)
	require.True(t, b.room(now))
	b.release(d, two)
	require.Zero(t, b.bytes)
	kept := &keptSyncs{most: 100}
	require.True(t, kept.keep(70))
	require.False(t, kept.keep(70))
	kept.forget(70)
	require.True(t, kept.keep(70))
	for range 1000 {
		b.hold(c, two)
		b.release(c, two)
	}
	require.LessOrEqual(t, len(b.order), 32)
}
