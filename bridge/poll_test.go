package bridge_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// gaps lists the times between reads.
func gaps(reads []readCall) []time.Duration {
	var out []time.Duration
	for i := 1; i < len(reads); i++ {
		out = append(out, reads[i].at.Sub(reads[i-1].at))
	}
	return out
}

const ms = time.Millisecond

// TestPollingAdapts: 10 ms while events flow, a second of patience, then doubling up to 100 ms.
func TestPollingAdapts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.run(nil, 1)
		time.Sleep(555 * ms)
		require.Equal(t, []time.Duration{20 * ms, 40 * ms, 80 * ms, 100 * ms, 100 * ms, 100 * ms, 100 * ms},
			gaps(r.log.takeReads()))

		r.commit(1, 1, 1)
		synctest.Wait()
		time.Sleep(2 * time.Second)
		reads := r.log.takeReads()
		busy, g := 0, gaps(reads)
		for g[busy] == 10*ms {
			busy++
		}
		require.Equal(t, 100, busy, "a second's worth")
		require.Equal(t, []time.Duration{20 * ms, 40 * ms, 80 * ms, 100 * ms, 100 * ms}, g[busy:busy+5])

		for range 10 { // two ticks a second: events flow
			r.commit(1, 1, 1)
			time.Sleep(500 * ms)
		}
		frames := r.pub.all()
		for i, f := range frames[2:] {
			require.LessOrEqual(t, f.at.Sub(f.At), 10*ms, i)
		}
		require.LessOrEqual(t, frames[1].at.Sub(frames[1].At), 100*ms)
	})
}

func TestPollingIsConfigurable(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.run(bridge.Config{}.With(bridge.Tuning{MinPoll: 5 * ms, MaxPoll: 30 * ms}), 1)
		time.Sleep(100 * ms)
		require.Equal(t, []time.Duration{10 * ms, 20 * ms, 30 * ms, 30 * ms}, gaps(r.log.takeReads())[:4])
		r.commit(1, 1, 1)
		time.Sleep(100 * ms)
		require.Contains(t, gaps(r.log.takeReads()), 5*ms)
	})
}

// TestOneReadForAllTiles: a pass is one read and at most one publish, however many tiles there are.
func TestOneReadForAllTiles(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const tiles = 300
		var ids []fence.TileID
		for i := range fence.TileID(tiles) {
			ids = append(ids, i+1)
			r.commit(i+1, 1, 2)
		}
		r.run(bridge.Config{}.With(bridge.Tuning{PassBytes: 16 << 20}), ids...)
		synctest.Wait()
		reads := r.log.takeReads()
		require.Len(t, reads, 1)
		require.Len(t, reads[0].cursors, tiles)
		require.Equal(t, []int{2 * tiles}, r.pub.takeCalls())

		// Their ticks spread out, they still find into common passes.
		const seconds = 2
		for range seconds * 100 {
			for range tiles / 50 {
				r.commit(ids[0], 1, 1)
				ids = append(ids[1:], ids[0])
			}
			time.Sleep(10 * ms)
		}
		reads = r.log.takeReads()
		require.LessOrEqual(t, len(reads), seconds*400+1, "at most one pass every 2.5 ms")
		require.LessOrEqual(t, len(r.pub.takeCalls()), len(reads))
		settle()
		for _, id := range ids {
			require.Equal(t, upTo(1, r.heads[id].Seq), r.pub.seqs(id))
		}
	})
}

// TestPassesRest: slow passes do not follow one another without pause.
func TestPassesRest(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.log.alter = func(*stream.Chunk) { time.Sleep(30 * ms) }
		r.commit(1, 1, 1)
		r.run(nil, 1)
		time.Sleep(999 * ms)
		require.Len(t, r.log.takeReads(), 1000/60+1)
	})
}

// TestCatchingUp: a tile that is behind is read without pause, in chunks.
func TestCatchingUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 1000)
		began := time.Now()
		r.run(bridge.Config{}.With(bridge.Tuning{Batch: 100}), 1)
		synctest.Wait()
		require.Equal(t, upTo(1, 1000), r.pub.seqs(1))
		require.Zero(t, time.Since(began))
		require.Len(t, r.log.takeReads(), 10, "the owner hash tells which is the last")
	})
}

// TestPassBytes: large entries make small passes, and one entry is always read.
func TestPassBytes(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		payload, _, err := (&stream.Batch{Events: [][]byte{make([]byte, stream.MaxEvent)}}).Encode()
		require.NoError(t, err)
		for range 100 {
			r.commitPayload(1, 1, payload)
		}
		b, _ := r.run(bridge.Config{}.With(bridge.Tuning{PassBytes: 256 << 10}), 1)
		synctest.Wait()
		require.EqualValues(t, 100, b.Stats().Batches)
		reads := r.log.takeReads()
		require.Equal(t, 64, reads[0].cursors[0].Limit, "of the assumed 4 KiB")
		require.LessOrEqual(t, reads[len(reads)-1].cursors[0].Limit, 8)
		require.GreaterOrEqual(t, reads[len(reads)-1].cursors[0].Limit, 1)
	})
}

// TestAFullReadIsNotAlwaysTheFirstOfMany: a tile whose entries filled its read exactly is read again only when it is
// due.
func TestAFullReadIsNotAlwaysTheFirstOfMany(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b, _ := r.run(bridge.Config{}.With(bridge.Tuning{Batch: 2, MinPoll: 10 * time.Second}), 1)
		for range 5 {
			time.Sleep(15 * time.Second)
			r.log.takeReads()
			r.commit(1, 1, 2)
			b.Wake(1)
			synctest.Wait()
			require.Len(t, r.log.takeReads(), 1)
		}
		require.Equal(t, upTo(1, 10), r.pub.seqs(1))
	})
}

func TestWake(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b, _ := r.run(bridge.Config{}.With(bridge.Tuning{MaxPoll: time.Hour}), 1, 2)
		time.Sleep(time.Hour)
		r.log.takeReads()
		r.commit(1, 1, 1)
		b.Wake(1, 77)
		synctest.Wait()
		require.Equal(t, upTo(1, 1), r.pub.seqs(1))
		reads := r.log.takeReads()
		require.Len(t, reads, 1)
		require.Len(t, reads[0].cursors, 1)

	})
}

// TestWakeDuringPass: the pass may have read the tile before the entry was there.
func TestWakeDuringPass(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b, _ := r.run(bridge.Config{}.With(bridge.Tuning{MinPoll: 20 * time.Second}), 1)
		synctest.Wait()
		r.pub.set(func(context.Context, []fanout.Message) (int, error) {
			r.pub.set(nil)
			r.commit(1, 1, 1)
			b.Wake(1)
			time.Sleep(50 * ms)
			return -1, nil
		})
		r.commit(1, 1, 1)
		b.Wake(1)
		time.Sleep(60 * ms)
		synctest.Wait()
		require.Equal(t, upTo(1, 2), r.pub.seqs(1))
	})
}

func TestAddAndRemove(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for tile := range fence.TileID(3) {
			r.commit(tile+1, 1, 1)
		}
		b, _ := r.run(nil, 1)
		settle()
		require.NoError(t, b.Add(2, 1))
		require.ErrorIs(t, b.Add(5, 0), fence.ErrInvalidArgument)
		require.Equal(t, 2, b.Stats().Tiles)
		settle()
		require.Equal(t, upTo(1, 1), r.pub.seqs(1))
		require.Equal(t, upTo(1, 1), r.pub.seqs(2))
		require.Empty(t, r.pub.seqs(3))

		r.commit(2, 1, 1)
		time.Sleep(110 * ms)
		b.Remove(2, 99)
		settle()
		acked, ok := r.mark(2, bridgeAcked)
		require.True(t, ok)
		require.Equal(t, fence.Seq(2), acked.Seq, "the last watermarks do not wait for their turn")
		r.commit(2, 1, 1)
		r.log.takeMarks()
		time.Sleep(20 * time.Second)
		require.Equal(t, upTo(1, 2), r.pub.seqs(2))
		for _, m := range r.log.takeMarks() {
			require.Equal(t, fence.TileID(1), m.tile)
		}
		require.NoError(t, b.Add(2))
		settle()
		require.Equal(t, upTo(1, 3), r.pub.seqs(2), "it goes on where it ended")
		b.Remove(2)
		require.NoError(t, b.Add(2))
		settle()
		r.commit(1, 2, 1)
		r.commit(2, 2, 1)
		settle()
		require.Equal(t, upTo(1, 4), r.pub.seqs(2))
		b.Remove(1, 2)
		settle()
		r.log.takeReads()
		time.Sleep(time.Minute)
		require.Empty(t, r.log.takeReads(), "without tiles it sleeps")
	})
}
