package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

func failWith(sent int, err error) func(context.Context, []fanout.Message) (int, error) {
	return func(context.Context, []fanout.Message) (int, error) { return sent, err }
}

// TestPublisherDownForAWhile: order is kept and nothing is lost, whatever the failures look like.
func TestPublisherDownForAWhile(t *testing.T) {
	for _, test := range []struct {
		name string
		fail func(context.Context, []fanout.Message) (int, error)
	}{
		{"nothing sent", failWith(0, errDown)},
		{"the first sent", failWith(1, errDown)},
		{"short without an error", failWith(0, nil)},
		{"hangs", func(ctx context.Context, _ []fanout.Message) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				var failed []bridge.FailureInfo
				b, _ := r.run(&bridge.Config{Hooks: bridge.Hooks{Failed: func(f bridge.FailureInfo) {
					failed = append(failed, f)
				}}}, 1, 2, 3)
				settle()
				for i := range 100 {
					switch i {
					case 20:
						r.pub.set(test.fail)
					case 60:
						r.pub.set(nil)
					}
					for tile := range fence.TileID(3) {
						r.commit(tile+1, 1, 2)
					}
					time.Sleep(250 * time.Millisecond)
				}
				time.Sleep(10 * time.Second)
				for tile := range fence.TileID(3) {
					require.Equal(t, upTo(1, 200), r.pub.seqs(tile+1))
				}
				require.NotEmpty(t, failed)
				require.Equal(t, bridge.OpPublish, failed[0].Op)
				require.Error(t, failed[0].Err)
				s := b.Stats()
				require.EqualValues(t, 600, s.Batches)
				require.Positive(t, s.PublishFailures)
				require.Zero(t, s.Failing)
				require.Zero(t, s.Backlog)
				require.Zero(t, s.StoreFailures)
			})
		})
	}
}

// TestOneChannelFails: the tiles of a node that is down wait, those of the others do not.
func TestOneChannelFails(t *testing.T) {
	const bad = 2
	for _, test := range []struct {
		name string
		fail func(context.Context, []fanout.Message) (int, error)
		late int // of the others' batches, how many may be slow
	}{
		{"known for each message", func(_ context.Context, m []fanout.Message) (int, error) {
			return firstOf(m, bad), fateOf(m, bad)
		}, 0},
		{"known up to the first", func(_ context.Context, m []fanout.Message) (int, error) {
			if n := firstOf(m, bad); n < len(m) {
				return n, errDown
			}
			return -1, nil
		}, 2},
		{"hangs", func(ctx context.Context, m []fanout.Message) (int, error) {
			if n := firstOf(m, bad); n < len(m) {
				<-ctx.Done()
				return n, fateOf(m, bad)
			}
			return -1, nil
		}, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				b, _ := r.run(nil, 1, bad, 3)
				settle()
				r.pub.set(test.fail)
				for range 50 {
					for _, tile := range []fence.TileID{1, bad, 3} {
						r.commit(tile, 1, 1)
					}
					time.Sleep(500 * time.Millisecond)
				}
				require.Equal(t, upTo(1, 50), r.pub.seqs(1))
				require.Equal(t, upTo(1, 50), r.pub.seqs(3))
				require.Empty(t, r.pub.seqs(bad))
				late := 0
				for _, f := range r.pub.all() {
					if f.at.Sub(f.At) > 120*time.Millisecond {
						late++
					}
				}
				require.LessOrEqual(t, late, 2*test.late)
				s := b.Stats()
				require.Equal(t, 1, s.Failing)
				require.InDelta(t, 50, s.Backlog, 15)
				r.pub.set(nil)
				time.Sleep(10 * time.Second)
				require.Equal(t, upTo(1, 50), r.pub.seqs(bad))
				require.Zero(t, b.Stats().Backlog)
			})
		})
	}
}

// TestFailingTileGivesWay: with a publisher that only says how far it got, a tile that always fails does
// not stand in front of others that failed with it once.
func TestFailingTileGivesWay(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const bad = 1 // the first of every pass
		r.pub.set(func(_ context.Context, m []fanout.Message) (int, error) {
			if n := firstOf(m, bad); n < len(m) {
				return n, errDown
			}
			return -1, nil
		})
		// All retries fall into common passes.
		r.run(bridge.Config{}.With(bridge.Tuning{MinPoll: time.Second, RetryMin: 10 * ms, RetryMax: 10 * ms}),
			bad, 2, 3)
		synctest.Wait()
		for tile := range fence.TileID(3) {
			r.commit(tile+1, 1, 1)
		}
		time.Sleep(2 * time.Second)
		require.Empty(t, r.pub.seqs(bad))
		require.Equal(t, upTo(1, 1), r.pub.seqs(2))
		require.Equal(t, upTo(1, 1), r.pub.seqs(3))
	})
}

// TestCountedOnce: what a failed publish takes back is met again, and not counted again.
func TestCountedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 1)
		b, _ := r.run(nil, 1)
		settle()
		r.pub.set(failWith(0, errDown))
		r.store.Update(1, func(s *memfence.State) {
			prev := fence.Position{Epoch: 1, Seq: 5, Chain: 5} // does not follow: a gap
			for epoch := range fence.Epoch(2) {                // the second is above the owner's epoch
				e := fence.NewEntry(fence.Entry{Tile: 1, Kind: fence.KindBatch, Prev: prev, Tick: 9,
					Position: fence.Position{Epoch: epoch + 1, Seq: prev.Seq + 1}})
				s.Entries = append(s.Entries, e)
				prev = e.Position
			}
			s.Owner.Position = prev
		})
		time.Sleep(10 * time.Second)
		require.Greater(t, b.Stats().PublishFailures, uint64(3))
		r.pub.set(nil)
		time.Sleep(5 * time.Second)
		require.Equal(t, []fence.Seq{1, 6}, r.pub.seqs(1))
		require.EqualValues(t, 1, b.Stats().Gaps)
		require.Equal(t, bridge.Drops{Unvouched: 1}, b.Stats().Dropped)
	})
}

// firstOf is the index of the first message on the tile.
func firstOf(m []fanout.Message, tile fence.TileID) int {
	for i := range m {
		if m[i].Tile == tile {
			return i
		}
	}
	return len(m)
}

// fateOf says that all messages but the tile's were handed over, if there are any of the tile.
func fateOf(m []fanout.Message, tile fence.TileID) error {
	if firstOf(m, tile) == len(m) {
		return nil
	}
	e := &fanout.PublishError{Err: errors.New("in part")}
	for i := range m {
		e.Handed = append(e.Handed, m[i].Tile != tile)
	}
	return fmt.Errorf("wrapped: %w", e)
}

// TestBacklogIsInTheLog: while nothing can be published, the bridge reads no more than a few entries at a time,
// remembers none of them, and says what waits and for how long.
func TestBacklogIsInTheLog(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.pub.set(failWith(0, errDown))
		r.commit(1, 1, 1000)
		b, _ := r.run(bridge.Config{}.With(bridge.Tuning{Batch: 16}), 1)
		time.Sleep(10 * time.Second)
		for i, call := range r.log.takeReads() {
			require.Equal(t, fence.Seq(0), call.cursors[0].After)
			require.LessOrEqual(t, call.cursors[0].Limit, 16)
			require.True(t, i == 0 || call.cursors[0].Limit < 16, "less when it is likely in vain")
		}
		require.Equal(t, 1000, b.Stats().Backlog)
		require.Equal(t, 10*time.Second, b.Stats().Lag)
		time.Sleep(time.Second)
		require.Equal(t, 11*time.Second, b.Stats().Lag, "it grows by itself")
		r.pub.set(nil)
		time.Sleep(10 * time.Second)
		require.Equal(t, upTo(1, 1000), r.pub.seqs(1))
		require.Zero(t, b.Stats().Backlog)
		require.Less(t, b.Stats().Lag, 20*time.Second)
		r.commit(1, 1, 1)
		settle()
		require.LessOrEqual(t, b.Stats().Lag, 100*time.Millisecond, "the last pass's")
	})
}

// TestSupersededWhileWaiting: what could not be published before a takeover meets the fence again.
func TestSupersededWhileWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.pub.set(failWith(0, errDown))
		r.commit(1, 1, 3)
		b, _ := r.run(nil, 1)
		settle()
		r.commit(1, 2, 1)
		settle()
		r.pub.set(nil)
		time.Sleep(10 * time.Second)
		require.Equal(t, upTo(4, 4), r.pub.seqs(1))
		require.Equal(t, bridge.Drops{Superseded: 3}, b.Stats().Dropped, "each counted, and once")
	})
}

func TestLogDownForAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.log.breakOps(bridge.OpResume)
		ops := map[bridge.Op]int{}
		b, _ := r.run(bridge.Config{MarkEvery: 500 * ms, Hooks: bridge.Hooks{Failed: func(f bridge.FailureInfo) {
			require.ErrorIs(t, f.Err, errDown)
			ops[f.Op] += f.Tiles
		}}}.With(bridge.Tuning{RenewEvery: 5 * time.Second}), 1, 2)
		r.commit(1, 1, 3)
		r.commit(2, 1, 3)
		time.Sleep(5 * time.Second)
		require.Empty(t, r.pub.all())
		require.Empty(t, r.log.takeReads(), "nothing is read before it is known from where")
		r.log.breakOps()
		time.Sleep(5 * time.Second)
		require.Equal(t, upTo(1, 3), r.pub.seqs(1))

		r.log.breakOps(bridge.OpRead, bridge.OpMark)
		r.log.takeReads()
		time.Sleep(15 * time.Second)
		reads := len(r.log.takeReads())
		// A wait is at least half of what it has doubled to: six in the first 1.6 s, then one a second, for each tile.
		require.LessOrEqual(t, reads, 2*20, "backing off")
		require.Greater(t, reads, 5)
		r.commit(1, 1, 2)
		require.Equal(t, 2, b.Stats().Failing)
		r.log.breakOps()
		time.Sleep(5 * time.Second)
		require.Equal(t, upTo(1, 5), r.pub.seqs(1))
		require.Equal(t, upTo(1, 3), r.pub.seqs(2))
		require.Zero(t, b.Stats().Failing)
		acked, _ := r.mark(1, stream.BridgeAcked)
		require.Equal(t, fence.Seq(5), acked.Seq)
		for _, op := range []bridge.Op{bridge.OpResume, bridge.OpRead, bridge.OpMark} {
			require.Positive(t, ops[op], op)
		}
		require.Positive(t, b.Stats().StoreFailures)
	})
}

// TestOneTileCannotBeRead: its node is down; the others do not notice.
func TestOneTileCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var down atomic.Bool
		down.Store(true)
		r.log.alter = func(c *stream.Chunk) {
			if c.Tile == 2 && down.Load() {
				*c = stream.Chunk{Tile: 2, Err: errDown}
			}
		}
		b, _ := r.run(nil, 1, 2)
		for range 20 {
			r.commit(1, 1, 1)
			r.commit(2, 1, 1)
			time.Sleep(500 * time.Millisecond)
		}
		require.Equal(t, upTo(1, 20), r.pub.seqs(1))
		for _, f := range r.pub.all() {
			require.LessOrEqual(t, f.at.Sub(f.At), 101*time.Millisecond)
		}
		require.Equal(t, 1, b.Stats().Failing)
		down.Store(false)
		time.Sleep(5 * time.Second)
		require.Equal(t, upTo(1, 20), r.pub.seqs(2))
	})
}
