package relay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/stream"
)

// forge is a frame as a stranger on the fan-out makes it: it follows the owner's last batch, and its chain is right.
func (o *owner) forge(epoch fence.Epoch, payload string) fence.Entry {
	c := fence.Commit{Tile: o.tile, Epoch: epoch, Contact: "mallory", Prev: o.at, Tick: o.tick, At: time.Now(),
		Payload: []byte(payload), Install: true}
	return c.Entry()
}

// forgeRebase is the marker of a rebase that never was.
func (o *owner) forgeRebase(epoch fence.Epoch) fence.Entry {
	r := fence.Rebase{Tile: o.tile, Epoch: epoch, Contact: "mallory", Seq: o.at.Seq + fence.RebaseJump, Tick: o.tick,
		At: time.Now()}
	return r.Entry()
}

// shown is the highest epoch that owners are told watchers were shown.
func (w *world) shown(tile fence.TileID) fence.Epoch {
	marks, err := w.log.Log.Marks(context.Background(), []fence.TileID{tile})
	require.NoError(w.t, err)
	return marks[0].Shown
}

// TestForgedFramesTeachNothing: an epoch that only the fan-out claims is not shown, is no floor and no mark, and delays
// no true frame.
func TestForgedFramesTeachNothing(t *testing.T) {
	w := newWorld(t)
	cfg := quick()
	cfg.earlyPause = 10 * time.Millisecond
	var seen []forgedInfo
	forged := make(chan forgedInfo, 100)
	cfg.onForged = func(i forgedInfo) { forged <- i }
	s := w.serve(cfg)
	o := w.claim(tileA, 3)
	o.snapshot()
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	for i, frame := range []func() fence.Entry{
		func() fence.Entry { return o.forge(fence.MaxNumber, "x") },
		func() fence.Entry { return o.forge(4, "x") }, // a smaller jump, which an owner would believe
		func() fence.Entry { return o.forgeRebase(fence.MaxNumber) },
		func() fence.Entry { return o.forgeRebase(5) },
	} {
		o.publish(frame())
		o.tickOn(3)
		c.reaches(o)
		if i == 0 {
			seen = append(seen, <-forged)
		}
	}
	require.Equal(t, fence.Epoch(3), seen[0].Known)
	require.EqualValues(t, fence.MaxNumber, seen[0].Position.Epoch)
	eventually(t, func() bool { return s.Stats().Forged >= 3 }, "of two that follow nothing one is held")
	require.Zero(t, c.Stats().Stale+c.Stats().Gaps)
	require.Equal(t, 1, c.syncs)
	eventually(t, func() bool { return w.shown(tileA) == 3 }, "the mark is written")

	next := w.claim(tileA, 4)
	next.tickOn(2)
	c.reaches(next)
	require.Equal(t, 1, c.syncs, "a true take-over arrives as frames")
	eventually(t, func() bool { return w.shown(tileA) == 4 }, "and is told")
}

// TestForgedFrameOfThePresentEpoch: nothing is signed, so such a frame is shown, until the next true one shows that the
// history is another.
func TestForgedFrameOfThePresentEpoch(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 3)
	o.snapshot()
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	o.publish(o.forge(3, "x"))
	o.tickOn(1)
	c.reaches(o)
	require.Equal(t, uint64(1), s.Stats().Replaced)
}

// TestForgedFramesReadSeldom: a stranger who publishes forged frames must not make relays read the store all the time.
func TestForgedFramesReadSeldom(t *testing.T) {
	inBubble(t, &Config{CheckInterval: time.Hour, tuning: tuning{markInterval: time.Hour}}, func(w *world, r *Relay) {
		o := w.claim(tileA, 1)
		o.tickOn(3)
		c, s := r.testJoin(tileA)
		time.Sleep(time.Second)
		c.drain()
		before := w.log.reads.Load()
		const seconds = 5
		for range seconds * 100 {
			o.publish(o.forge(fence.MaxNumber, "x"))
			o.publish(o.commit())
			time.Sleep(10 * time.Millisecond)
			require.Positive(t, c.drain(), "true frames do not wait")
		}
		require.LessOrEqual(t, w.log.reads.Load()-before, int64(3*seconds))
		require.True(t, s.live)
		h := r.hubs.find(tileA)
		for range 12 { // three times as much as is held
			o.publish(o.forge(fence.MaxNumber, string(make([]byte, 1<<20))))
			o.commit()
		}
		require.LessOrEqual(t, h.heldBytes, r.cfg.TailBytes)
	})
}

// TestOrdinaryFramesCostNoRead: the store is asked about an epoch once, however many frames are of it.
func TestOrdinaryFramesCostNoRead(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	before := w.log.reads.Load()
	o.tickOn(200)
	c.reaches(o)
	require.Equal(t, before, w.log.reads.Load())
	o = &owner{w: w, tile: tileA, epoch: 2, at: o.at, tick: o.tick, state: o.state}
	o.publish(o.append(true))
	c.reaches(o)
	o.tickOn(200)
	c.reaches(o)
	require.Equal(t, before+1, w.log.reads.Load(), "a take-over costs one")
	require.Zero(t, s.Stats().Gaps+s.Stats().Forged)
}

// TestFloorThatTheStoreContradicts: a client whose floor is none of the tile's learns so from the store alone, and not
// while consumers of the stream have told of such an epoch: its owner climbs above it then.
func TestFloorThatTheStoreContradicts(t *testing.T) {
	w := newWorld(t)
	s := w.serve(quick())
	w.claim(tileA, 3).tickOn(2)
	ask := func(floor fence.Epoch) func() relaypb.Code {
		conn := s.raw(t, relaypb.Subprotocol)
		send(t, conn, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
			Held: []*relaypb.Held{{Tile: tileA.String(), EpochFloor: uint64(floor)}}}}})
		return func() relaypb.Code { return receive(t, conn).GetError().GetCode() }
	}
	next := ask(fence.MaxNumber)
	code := next()
	if code == relaypb.Code_CODE_STALE { // until a read that began after the client came has ended
		code = next()
	}
	require.Equal(t, relaypb.Code_CODE_UNKNOWN_EPOCH, code)
	eventually(t, func() bool { return w.shown(tileA) > 0 }, "marks are written")
	require.Equal(t, fence.Epoch(3), w.shown(tileA), "a claim of a client's is none")
	require.NoError(t, stream.MarkOne(t.Context(), w.log.Log, stream.MarkWrite{Tile: tileA,
		Consumer: stream.BridgeAcked, Shown: 8}))
	require.Equal(t, relaypb.Code_CODE_STALE, ask(8)())
}
