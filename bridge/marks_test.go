package bridge_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

const (
	bridgeAcked   = stream.BridgeAcked
	bridgePending = stream.BridgePending
)

// TestMarksAreCoalesced: they follow every MarkEvery at most, whatever happens between.
func TestMarksAreCoalesced(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b, _ := r.run(&bridge.Config{MarkEvery: 500 * ms}, 1)
		for range 500 {
			r.commit(1, 1, 1)
			time.Sleep(10 * ms)
		}
		synctest.Wait()
		last := map[stream.Consumer]markCall{}
		marks := r.log.takeMarks()
		require.InDelta(t, 2*10, len(marks), 4)
		for _, m := range marks {
			if before, ok := last[m.c]; ok {
				require.GreaterOrEqual(t, m.at.Sub(before.at), 500*ms)
				require.LessOrEqual(t, m.at.Sub(before.at), 560*ms)
				require.Greater(t, m.seq, before.seq)
			}
			last[m.c] = m
		}
		require.EqualValues(t, len(marks), b.Stats().Marks)
	})
}

// TestMarksOfAQuietTile: a lease from the beginning, renewed, and none lost to a trim.
func TestMarksOfAQuietTile(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.run(bridge.Config{}.With(bridge.Tuning{RenewEvery: 5 * time.Second}), 1)
		synctest.Wait()
		for _, c := range []stream.Consumer{bridgeAcked, bridgePending} {
			m, ok := r.mark(1, c)
			require.True(t, ok, "the lease is there before the first event")
			require.Zero(t, m.Seq)
		}
		for range 60 {
			time.Sleep(time.Second)
			trimmed, err := r.log.Trim(t.Context(), stream.TrimRequest{Tile: 1, Lease: 10 * time.Second})
			require.NoError(t, err)
			require.Empty(t, trimmed.Expired)
		}
		require.InDelta(t, 2*60/4.4, len(r.log.takeMarks()), 5)
	})
}

// TestMarksWhileFailing: the lease of a tile that cannot be published is renewed, and what is not
// published cannot be trimmed.
func TestMarksWhileFailing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 3)
		r.run(bridge.Config{MarkEvery: 250 * ms}.With(bridge.Tuning{RenewEvery: 5 * time.Second}), 1)
		settle()
		r.pub.set(failWith(0, errDown))
		r.commit(1, 1, 10)
		require.NoError(t, r.store.SaveSnapshot(t.Context(),
			fence.SnapshotWrite{Tile: 1, Position: r.heads[1], Tick: r.ticks, Blob: []byte("s")}))
		for range 20 {
			time.Sleep(time.Second)
			trimmed, err := r.log.Trim(t.Context(), stream.TrimRequest{Tile: 1, Lease: 10 * time.Second})
			require.NoError(t, err)
			require.Empty(t, trimmed.Expired)
			require.Equal(t, fence.Seq(3), trimmed.Floor)
		}
		r.pub.set(nil)
		time.Sleep(5 * time.Second)
		require.Equal(t, upTo(1, 13), r.pub.seqs(1))
	})
}

// TestMarksOfAHungNode: the calls to a node that hangs do not hold up the watermarks of the others for longer
// than one StoreTimeout, be it at the start, in between or at the end.
func TestMarksOfAHungNode(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var hung atomic.Bool
		hung.Store(true)
		r.log.before = func(op bridge.Op, tile fence.TileID) error {
			if hung.Load() && tile > 100 && (op == bridge.OpMark || op == bridge.OpResume) {
				time.Sleep(2 * time.Second) // the default StoreTimeout
				return errDown
			}
			return nil
		}
		ids := firstTiles(200)
		b, stop := r.run(&bridge.Config{MarkEvery: 500 * ms, DrainTimeout: 3 * time.Second}, ids...)
		time.Sleep(2100 * ms)
		r.commit(1, 1, 1)
		settle()
		require.Equal(t, upTo(1, 1), r.pub.seqs(1))
		hung.Store(false)
		time.Sleep(10 * time.Second)
		hung.Store(true)
		r.log.takeMarks()
		for range 20 {
			r.commit(1, 1, 1)
			r.commit(150, 1, 1)
			time.Sleep(500 * time.Millisecond)
		}
		require.Equal(t, upTo(1, 20), r.pub.seqs(150), "it is forwarded all the same")
		var last time.Time
		late := 0
		for _, m := range r.log.takeMarks() {
			if m.tile == 1 && m.c == bridgeAcked {
				if !last.IsZero() && m.at.Sub(last) > 700*ms {
					late++
					require.LessOrEqual(t, m.at.Sub(last), 2700*ms)
				}
				last = m.at
			}
		}
		require.LessOrEqual(t, late, 1)
		require.WithinDuration(t, time.Now(), last, 700*ms)
		r.commit(1, 1, 1)
		time.Sleep(20 * ms)
		stop()
		acked, _ := r.mark(1, bridgeAcked)
		require.Equal(t, fence.Seq(22), acked.Seq)
		require.EqualValues(t, 42, b.Stats().Batches)
	})
}

// TestMarksInOneCall: one call reads the watermarks of all tiles, and one writes both of each.
func TestMarksInOneCall(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const tiles = 100 // each is polled 3,000 times
		ids := firstTiles(tiles)
		r.run(nil, ids...)
		synctest.Wait()
		require.Equal(t, 1, r.log.resumeCalls)
		require.Equal(t, 1, r.log.markCalls)
		require.Len(t, r.log.takeMarks(), 2*tiles)
		for _, id := range ids {
			r.commit(id, 1, 3)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.LessOrEqual(t, r.log.markCalls, 3)
		for _, id := range ids {
			acked, _ := r.mark(id, bridgeAcked)
			require.Equal(t, fence.Seq(3), acked.Seq)
		}
		r.log.takeMarks()
		time.Sleep(5 * time.Minute)
		marks := r.log.takeMarks()
		require.InDelta(t, 2*tiles*300/35, len(marks), tiles*3)
		busiest := map[int]int{}
		for _, m := range marks {
			busiest[int(m.at.Sub(marks[0].at)/time.Second)]++
		}
		for second, n := range busiest {
			require.Less(t, n, tiles, "second %d: renewals are spread out", second)
		}
	})
}

// TestTrimmedBeforeItWasRead: no bridge ran for longer than its lease. It is counted, logged, and the bridge goes
// on with what there is.
func TestTrimmedBeforeItWasRead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 3)
		_, stop := r.run(nil, 1)
		settle()
		stop()
		r.commit(1, 1, 10)
		require.NoError(t, r.store.SaveSnapshot(t.Context(),
			fence.SnapshotWrite{Tile: 1, Position: r.heads[1], Tick: r.ticks, Blob: []byte("s")}))
		r.commit(1, 1, 2)
		time.Sleep(time.Minute)
		var expired []stream.Consumer
		for range 2 { // the first trim only finds that they are silent
			trimmed, err := r.log.Trim(t.Context(), stream.TrimRequest{Tile: 1, Lease: 10 * time.Second})
			require.NoError(t, err)
			expired = append(expired, trimmed.Expired...)
			time.Sleep(10 * time.Second)
		}
		require.Len(t, expired, 2)
		// Its own mark is gone with the lease; a successor that still knows where it was says so.
		require.Error(t, stream.MarkOne(t.Context(), r.log.Log,
			stream.MarkWrite{Tile: 1, Consumer: bridgeAcked, Seq: 3}))
		r.log.takeMarks()
		var lost []bridge.LostInfo
		var gaps int
		b, _ := r.run(bridge.Config{}.With(bridge.Tuning{
			Lost: func(i bridge.LostInfo) { lost = append(lost, i) },
			Gap:  func(bridge.GapInfo) { gaps++ },
		}), 1)
		settle()
		require.Equal(t, append(upTo(1, 3), upTo(13, 15)...), r.pub.seqs(1))
		require.Equal(t, []bridge.LostInfo{{Tile: 1, Read: 3, Trimmed: 13}}, lost)
		require.EqualValues(t, 1, b.Stats().Resyncs)
		require.Equal(t, 1, gaps)
		require.Zero(t, b.Stats().StoreFailures, "the mark is in force")
		time.Sleep(5 * time.Second)
		acked, _ := r.mark(1, bridgeAcked)
		require.Equal(t, fence.Seq(15), acked.Seq)
	})
}

// TestTrimmedWhileNoBridgeRan: the marks went with their lease, so that nothing says what was read. That entries are
// gone is reported once a tile all the same, also when the first pass is quicker than the first mark.
func TestTrimmedWhileNoBridgeRan(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const tiles = 8
		for id := fence.TileID(1); id <= tiles; id++ {
			r.commit(id, 1, 12)
			require.NoError(t, r.store.SaveSnapshot(t.Context(),
				fence.SnapshotWrite{Tile: id, Position: r.heads[id], Tick: r.ticks, Blob: []byte("s")}))
			r.commit(id, 1, 2)
			_, err := r.log.Trim(t.Context(), stream.TrimRequest{Tile: id, Lease: 10 * time.Second})
			require.NoError(t, err)
		}
		lost := map[fence.TileID][]bridge.LostInfo{}
		b, _ := r.run(bridge.Config{}.With(bridge.Tuning{
			Lost: func(i bridge.LostInfo) { lost[i.Tile] = append(lost[i.Tile], i) },
		}))
		for id := fence.TileID(1); id <= tiles; id++ {
			require.NoError(t, b.Add(id))
			time.Sleep(20 * ms) // while the marks of the one before are gathered
		}
		time.Sleep(5 * time.Second)
		for id := fence.TileID(1); id <= tiles; id++ {
			require.Equal(t, []bridge.LostInfo{{Tile: id, Trimmed: 12}}, lost[id])
			require.Equal(t, upTo(12, 14), r.pub.seqs(id))
		}
		require.EqualValues(t, tiles, b.Stats().Resyncs)
	})
}

// TestHistoryWentBack: what a new owner writes in the place of entries that a failover took back is kept until it
// was read, although the watermarks were past it.
func TestHistoryWentBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 50)
		r.run(&bridge.Config{MarkEvery: 100 * ms}, 1)
		time.Sleep(time.Second)
		acked, _ := r.mark(1, bridgeAcked)
		require.Equal(t, fence.Seq(50), acked.Seq)
		r.loseTail(1, 10)
		time.Sleep(time.Second) // the bridge looks, and finds that its place is gone
		r.pub.set(failWith(0, errDown))
		r.commit(1, 2, 30)
		require.NoError(t, r.store.SaveSnapshot(t.Context(),
			fence.SnapshotWrite{Tile: 1, Position: r.heads[1], Tick: r.ticks, Blob: []byte("s")}))
		r.commit(1, 2, 2)
		for range 5 {
			time.Sleep(time.Second)
			_, err := r.log.Trim(t.Context(), stream.TrimRequest{Tile: 1, Lease: time.Minute})
			require.NoError(t, err)
		}
		r.pub.set(nil)
		time.Sleep(5 * time.Second)
		require.Equal(t, append(upTo(1, 50), upTo(11, 42)...), r.pub.seqs(1))
		acked, _ = r.mark(1, bridgeAcked)
		require.Equal(t, fence.Seq(42), acked.Seq)
	})
}

// TestDrain: the pass under way is finished, and a successor repeats nothing.
func TestDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, stop := r.run(nil, 1)
		settle()
		r.commit(1, 1, 3)
		r.pub.set(func(context.Context, []fanout.Message) (int, error) {
			time.Sleep(300 * ms)
			return -1, nil
		})
		time.Sleep(120 * ms) // now a publish is under way
		began := time.Now()
		stop()
		require.InDelta(t, 250*ms, time.Since(began), float64(100*ms))
		require.Equal(t, upTo(1, 3), r.pub.seqs(1))
		for _, c := range []stream.Consumer{bridgeAcked, bridgePending} {
			m, _ := r.mark(1, c)
			require.Equal(t, fence.Seq(3), m.Seq)
		}
		r.pub.set(nil)
		r.commit(1, 1, 2)
		r.run(nil, 1)
		settle()
		require.Equal(t, upTo(1, 5), r.pub.seqs(1))
	})
}

// TestDrainIsBounded: nothing that hangs can keep Run from returning.
func TestDrainIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, stop := r.run(&bridge.Config{PublishTimeout: time.Hour, DrainTimeout: 3 * time.Second}, 1)
		settle()
		r.pub.set(func(ctx context.Context, _ []fanout.Message) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		r.commit(1, 1, 1)
		time.Sleep(120 * ms)
		began := time.Now()
		stop()
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}

// TestCrash: what was published after the last watermark is published again; nothing else is, and nothing
// is lost.
func TestCrash(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, stop := r.run(&bridge.Config{MarkEvery: 500 * ms}, 1)
		for range 100 {
			r.commit(1, 1, 1)
			time.Sleep(20 * ms)
		}
		synctest.Wait()
		r.log.breakOps(bridge.OpMark) // the watermarks of the end are not written
		stop()
		acked, _ := r.mark(1, bridgeAcked)
		pending, _ := r.mark(1, bridgePending)
		require.Equal(t, acked.Seq, pending.Seq)
		require.GreaterOrEqual(t, acked.Seq, fence.Seq(100-30))
		r.log.breakOps()
		r.commit(1, 1, 10)
		r.run(nil, 1)
		settle()
		require.Equal(t, append(upTo(1, 100), upTo(acked.Seq+1, 110)...), r.pub.seqs(1))
	})
}

func TestRunsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b, stop := r.run(nil, 1)
		synctest.Wait()
		require.ErrorIs(t, b.Run(t.Context()), fence.ErrAlreadyRun)
		r.commit(1, 1, 1)
		settle()
		stop()
		require.ErrorIs(t, b.Run(t.Context()), fence.ErrAlreadyRun)
		r.commit(1, 1, 1)
		r.run(nil, 1)
		settle()
		require.Equal(t, upTo(1, 2), r.pub.seqs(1))
		require.EqualValues(t, 1, b.Stats().Batches)
	})
}

func TestArguments(t *testing.T) {
	r := newRig(t)
	for name, err := range map[string]error{
		"no log":       errOf(bridge.New(nil, r.pub, nil, nil, nil)),
		"no publisher": errOf(bridge.New(r.log, nil, nil, nil, nil)),
		"no tile":      errOf(bridge.New(r.log, r.pub, nil, []fence.TileID{1, 0}, nil)),
		"negative":     errOf(bridge.New(r.log, r.pub, nil, nil, &bridge.Config{PublishTimeout: -1})),
		"hints order":  errOf(bridge.New(r.log, r.pub, nil, nil, &bridge.Config{HintedPoll: 50 * ms})),
		"mark order":   errOf(bridge.New(r.log, r.pub, nil, nil, &bridge.Config{MarkEvery: time.Minute})),
	} {
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	require.Equal(t, "superseded fenced unvouched repeated reason(9)",
		fmt.Sprint(bridge.Superseded, " ", bridge.Fenced, " ", bridge.Unvouched, " ", bridge.Repeated, " ",
			bridge.DropReason(9)))
}

func errOf(_ *bridge.Bridge, err error) error { return err }
