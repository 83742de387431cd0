package bridge_test

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// TestAFloorThatWasNone: the owner hash shows an epoch that was never minted, until it is repaired. From then on the
// bridge forwards what the owner commits.
func TestAFloorThatWasNone(t *testing.T) {
	for _, epoch := range []fence.Epoch{2 + fence.EpochLeap, 1 << 40, fence.MaxNumber} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprint(epoch, early), func(t *testing.T) {
				inBubble(t, func(t *testing.T, r *rig) {
					var forged atomic.Bool
					forged.Store(early)
					r.log.alter = func(c *stream.Chunk) {
						if forged.Load() {
							c.Owner.Epoch = epoch
						}
					}
					r.commit(1, 1, 2)
					r.run(nil, 1)
					time.Sleep(time.Second)
					forged.Store(true)
					r.commit(1, 1, 1)
					time.Sleep(time.Second)
					forged.Store(false)
					time.Sleep(time.Second)
					r.commit(1, 1, 2)
					time.Sleep(time.Second)
					got := r.pub.seqs(1)
					require.NotEmpty(t, got)
					require.Equal(t, fence.Seq(5), got[len(got)-1])
				})
			})
		}
	}
}

// TestAnEntryAfterWhichNothingComes: the bridge forwards what is before it, waits, and goes on when it is gone.
func TestAnEntryAfterWhichNothingComes(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var there atomic.Bool
		there.Store(true)
		r.log.alter = func(c *stream.Chunk) {
			if c.Tile == 1 && there.Load() {
				c.Poison = &stream.Poison{Tile: 1, Seq: math.MaxUint64, Reason: "no sequence"}
			}
		}
		b, _ := r.run(nil, 1, 2)
		for range 6 {
			r.commit(1, 1, 1)
			r.commit(2, 1, 1)
			time.Sleep(10 * time.Second)
		}
		require.Equal(t, upTo(1, 6), r.pub.seqs(1))
		require.Equal(t, upTo(1, 6), r.pub.seqs(2))
		require.Equal(t, 1, b.Stats().Failing)
		read := 0
		for _, call := range r.log.takeReads() {
			if slices.ContainsFunc(call.cursors, func(c stream.Cursor) bool { return c.Tile == 1 }) {
				read++
			}
		}
		require.Less(t, read, 200, "it backs off")
		letters, err := r.log.DeadLetters(t.Context(), 1)
		require.NoError(t, err)
		require.Empty(t, letters)
		there.Store(false)
		time.Sleep(10 * time.Second)
		r.commit(1, 1, 1)
		time.Sleep(time.Second)
		require.Equal(t, upTo(1, 7), r.pub.seqs(1))
		require.Zero(t, b.Stats().Failing)
		m, ok := r.mark(1, stream.BridgeAcked)
		require.True(t, ok)
		require.Equal(t, fence.Seq(7), m.Seq)
	})
}

// TestAMarkAboveTheHead: it keeps nothing from being forwarded, whatever position it names.
func TestAMarkAboveTheHead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 3)
		require.NoError(t, stream.MarkOne(t.Context(), r.log.Log, stream.MarkWrite{Tile: 1,
			Consumer: stream.BridgeAcked, Seq: 5000, Last: fence.Position{Epoch: 9, Seq: 5000, Chain: 1}}))
		b, _ := r.run(nil, 1)
		time.Sleep(time.Second)
		r.commit(1, 1, 2)
		time.Sleep(time.Second)
		require.Equal(t, upTo(1, 5), r.pub.seqs(1))
		require.Zero(t, b.Stats().Dropped.Repeated)
	})
}
