package relay

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/gate"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// inBubble runs a relay without connections under fake time.
func inBubble(t *testing.T, cfg *Config, f func(w *world, r *Relay)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r, err := New(w.fan, w.log, Public, cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		f(w, r)
		cancel()
		require.NoError(t, <-done)
	})
}

// stranger is a session of the relay's that has said nothing of itself.
func stranger(r *Relay) *gate.Session {
	g, err := r.gate.Accept(&http.Request{})
	if err != nil {
		panic(err)
	}
	return g
}

// join is a client without a connection watching a tile; its writer is the caller of drain.
func (r *Relay) testJoin(tile fence.TileID) (*client, *subscription) {
	c := r.newClient(stranger(r), relaypb.Binary)
	s := &subscription{h: r.hubs.open(tile, ""), out: &c.queue, form: form(relaypb.Binary)}
	s.join()
	return c, s
}

// drain does the writer's work until there is none, and returns how many frames it would have written.
func (c *client) drain() (frames int) {
	for {
		f, owed, what := c.next(nil)
		switch what {
		case nextFrames:
			frames += len(f)
		case nextSync:
			owed.sync()
		case nextWait, nextClose:
			return frames
		}
	}
}

func TestOutageBacksOff(t *testing.T) {
	inBubble(t, &Config{CheckInterval: time.Hour, tuning: tuning{markInterval: time.Hour}}, func(w *world, r *Relay) {
		w.log.err = errDown
		c, _ := r.testJoin(tileA)
		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, c.drain(), "CODE_UNAVAILABLE, once")
		failed := r.Stats().RepairsFailed
		require.Greater(t, failed, uint64(10*60/5), "it goes on trying")
		require.Less(t, failed, uint64(10*60/5*2+10), "every BackoffMax/2 to BackoffMax")
		w.log.set(func(l *testLog) { l.err = nil })
		time.Sleep(DefaultCheckInterval + time.Second)
		require.Equal(t, 1, c.drain(), "the Sync")
	})
}

func TestOutageOfAnUnwatchedTileEnds(t *testing.T) {
	inBubble(t, nil, func(w *world, r *Relay) {
		w.log.err = errDown
		_, s := r.testJoin(tileA)
		time.Sleep(time.Second)
		s.leave()
		time.Sleep(defaultLinger + 5*time.Second)
		require.Zero(t, r.Stats().Tiles)
		require.Zero(t, w.fan.count(tileA))
		failed := r.Stats().RepairsFailed
		time.Sleep(time.Hour)
		require.Equal(t, failed, r.Stats().RepairsFailed)
	})
}

func TestIdleTileCostsOneSharedReadAndOneMark(t *testing.T) {
	inBubble(t, nil, func(w *world, r *Relay) {
		const tiles = 100
		var owners []*owner
		for i := range tiles {
			o := w.claim(tileA+fence.TileID(i), 1)
			o.snapshot()
			c, _ := r.testJoin(o.tile)
			synctest.Wait()
			require.Equal(t, 1, c.drain())
			owners = append(owners, o)
		}
		w.log.reads.Store(0)
		w.log.marks.Store(0)
		for range 60 {
			for _, o := range owners {
				o.refresh()
			}
			time.Sleep(10 * time.Second)
		}
		checks, marks := int64(10*time.Minute/DefaultCheckInterval), int64(10*time.Minute/defaultMarkInterval)
		require.LessOrEqual(t, w.log.reads.Load(), checks*checkTurns, "tiles share their reads")
		require.InDelta(t, marks*tiles, w.log.marks.Load(), tiles*2)
		require.EqualValues(t, tiles, w.log.lasts.Load(),
			"no read of the position but the first: the owner hash comes with the entries")
		require.EqualValues(t, tiles, w.log.snapshots.Load())
	})
}

func TestDormantTileIsStillCompared(t *testing.T) {
	inBubble(t, &Config{BehindGrace: time.Minute}, func(w *world, r *Relay) {
		o := w.claim(tileA, 1)
		o.snapshot()
		o.commit()
		c, s := r.testJoin(tileA)
		synctest.Wait()
		require.Equal(t, 1, c.drain())
		w.setBack(tileA, 1)
		w.expire(tileA)
		time.Sleep(5 * time.Minute)
		c.drain()
		require.EqualValues(t, 1, r.Stats().Replaced, "nobody has appended the lost entry again")
		require.Equal(t, w.claimState(tileA).at, s.h.view.at)
	})
}

// TestPushBounds is the queue's contract, without a writer.
func TestPushBounds(t *testing.T) {
	q := &queue{}
	q.init(3, 100)
	require.True(t, q.push(make([]byte, 500)), "anything fits an empty queue")
	require.False(t, q.push(make([]byte, 1)), "over the bytes")
	require.NotZero(t, q.slowFor(time.Now().Add(time.Second)))
	frames, _, what := q.next(nil)
	require.Equal(t, nextFrames, what)
	require.Len(t, frames, 1)
	for range 3 {
		require.True(t, q.push([]byte("x")))
	}
	require.False(t, q.push([]byte("x")), "over the number")
	s := &subscription{}
	q.owe(s)
	q.owe(s)
	_, _, what = q.next(nil)
	require.Equal(t, nextFrames, what)
	_, got, what := q.next(nil)
	require.Equal(t, nextSync, what)
	require.Same(t, s, got)
	_, _, what = q.next(nil)
	require.Equal(t, nextWait, what)
	require.Zero(t, q.slowFor(time.Now()), "caught up")

	q.push([]byte("last"))
	require.True(t, q.shut(1001, "bye", true))
	require.False(t, q.shut(1008, "again", true))
	require.True(t, q.push([]byte("too late")), "taken, and dropped")
	frames, _, _ = q.next(nil)
	require.Len(t, frames, 1)
	_, _, what = q.next(nil)
	require.Equal(t, nextClose, what)
	q.gone("peer left")
	code, reason := q.cause()
	require.Equal(t, 1001, code)
	require.Equal(t, "bye", reason)
}
