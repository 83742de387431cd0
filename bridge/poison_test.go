package bridge_test

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
)

// damage flips a bit of an entry's payload in the store.
func (r *rig) damage(tile fence.TileID, seq fence.Seq) {
	r.store.Update(tile, func(s *memfence.State) {
		for i := range s.Entries {
			if e := &s.Entries[i]; e.Seq == seq {
				e.Frame = append([]byte(nil), e.Frame...)
				e.Frame[len(e.Frame)-1] ^= 1
			}
		}
	})
}

// unreadable makes reads meet an entry that cannot be decoded at seq.
func unreadable(tile fence.TileID, seq fence.Seq) func(*stream.Chunk) {
	return func(c *stream.Chunk) {
		if c.Tile != tile {
			return
		}
		for i := range c.Entries {
			if c.Entries[i].Seq == seq {
				c.Poison = &stream.Poison{Tile: tile, Seq: seq, Fields: map[string]string{"x": "y"}, Reason: "no epoch"}
				c.Entries = c.Entries[:i]
				return
			}
		}
	}
}

func TestPoisonDoesNotStopTheTile(t *testing.T) {
	for _, test := range []struct {
		name   string
		poison func(r *rig)
		reason string
	}{
		{"unreadable", func(r *rig) {
			r.commit(1, 1, 1)
			r.log.alter = unreadable(1, 3)
		}, "no epoch"},
		{"not what its chain says", func(r *rig) {
			r.commit(1, 1, 1)
			r.damage(1, 3)
		}, "chain"},
		{"not a batch", func(r *rig) {
			r.commitPayload(1, 1, []byte{9, 9, 9})
		}, "batch"},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.commit(1, 1, 2)
				test.poison(r)
				r.commit(1, 1, 2)
				r.commit(2, 1, 1)
				var letters []bridge.DeadLetterInfo
				b, _ := r.run(bridge.Config{}.With(bridge.Tuning{DeadLettered: func(i bridge.DeadLetterInfo) {
					letters = append(letters, i)
				}}), 1, 2)
				settle()
				r.commit(1, 1, 1)
				settle()
				require.Equal(t, []fence.Seq{1, 2, 4, 5, 6}, r.pub.seqs(1))
				require.Equal(t, upTo(1, 1), r.pub.seqs(2))
				require.EqualValues(t, 1, b.Stats().DeadLetters)
				require.Zero(t, b.Stats().Gaps)
				require.Len(t, letters, 1)
				require.NoError(t, letters[0].Err)
				dead, err := r.log.DeadLetters(t.Context(), 1)
				require.NoError(t, err)
				require.Len(t, dead, 1)
				require.Equal(t, fence.TileID(1), dead[0].Tile)
				require.Equal(t, fence.Seq(3), dead[0].Seq)
				require.Contains(t, dead[0].Reason, test.reason)
				require.NotEmpty(t, dead[0].Fields)
			})
		})
	}
}

// TestPoisonOnce: a pass that is repeated because nothing could be published does not dead-letter again.
func TestPoisonOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 5)
		r.damage(1, 3)
		r.pub.set(failWith(0, errDown))
		b, _ := r.run(nil, 1)
		time.Sleep(10 * time.Second)
		require.Positive(t, b.Stats().PublishFailures)
		r.pub.set(nil)
		time.Sleep(10 * time.Second)
		require.Equal(t, []fence.Seq{1, 2, 4, 5}, r.pub.seqs(1))
		dead, err := r.log.DeadLetters(t.Context(), 1)
		require.NoError(t, err)
		require.Len(t, dead, 1)
		require.EqualValues(t, 1, b.Stats().DeadLetters)
	})
}

// TestAllPoison: a stream of nothing else is worked off without holding up the others.
func TestAllPoison(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for range 100 {
			r.commitPayload(1, 1, []byte("nonsense"))
		}
		r.commit(1, 1, 1)
		r.commit(2, 1, 1)
		b, _ := r.run(nil, 1, 2)
		settle()
		require.EqualValues(t, 100, b.Stats().DeadLetters)
		require.Equal(t, upTo(101, 101), r.pub.seqs(1))
		require.Equal(t, upTo(1, 1), r.pub.seqs(2))
	})
}

// TestDeadLettersUnavailable: a poison entry is offered a few times; the tile waits, the others do not.
func TestDeadLettersUnavailable(t *testing.T) {
	for _, failures := range []int{2, 1000} {
		inBubble(t, func(t *testing.T, r *rig) {
			r.commit(1, 1, 4)
			r.damage(1, 2)
			r.commit(2, 1, 1)
			left := failures
			r.log.before = func(op bridge.Op, _ fence.TileID) error {
				if op == bridge.OpDeadLetter && left > 0 {
					left--
					return errDown
				}
				return nil
			}
			var failed []bridge.FailureInfo
			b, _ := r.run(&bridge.Config{Hooks: bridge.Hooks{Failed: func(f bridge.FailureInfo) {
				failed = append(failed, f)
			}}}, 1, 2)
			time.Sleep(20 * time.Millisecond)
			require.Equal(t, upTo(1, 1), r.pub.seqs(1), "what came before it is through")
			require.Equal(t, upTo(1, 1), r.pub.seqs(2))
			require.Equal(t, 1, b.Stats().Failing)
			time.Sleep(10 * time.Second)
			require.Equal(t, []fence.Seq{1, 3, 4}, r.pub.seqs(1))
			require.Zero(t, b.Stats().Failing)
			require.Len(t, failed, 2)
			require.Equal(t, bridge.OpDeadLetter, failed[0].Op)
			require.ErrorIs(t, failed[0].Err, errDown)
			if failures == 2 {
				require.EqualValues(t, 1, b.Stats().DeadLetters)
			} else {
				require.EqualValues(t, 1, b.Stats().DeadLettersLost)
			}
		})
	}
}

// TestSlowDeadLetters: a damaged tile whose dead letters take long delays a pass of the others by one of them, and not
// by those of all its entries; and each pass of failing tiles by one.
func TestSlowDeadLetters(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const slow = 1500 * time.Millisecond
		for range 20 {
			r.commitPayload(1, 1, []byte("nonsense"))
		}
		r.commit(1, 1, 1)
		var ended time.Time
		together := 0
		r.log.before = func(op bridge.Op, _ fence.TileID) error {
			if op == bridge.OpDeadLetter {
				if time.Now().Equal(ended) { // in the pass of the letter before
					together++
				}
				time.Sleep(slow)
				ended = time.Now()
			}
			return nil
		}
		b, _ := r.run(bridge.Config{}.With(bridge.Tuning{RetryMax: time.Second}), 1, 2)
		for range 60 {
			r.commit(2, 1, 1)
			time.Sleep(time.Second)
		}
		late := 0
		for _, f := range r.pub.all() {
			if f.Tile == 2 && f.at.Sub(f.At) > 120*time.Millisecond {
				late++
			}
		}
		require.LessOrEqual(t, late, 2)
		require.Zero(t, together)
		require.Equal(t, upTo(1, 60), r.pub.seqs(2))
		require.Equal(t, upTo(21, 21), r.pub.seqs(1))
		require.EqualValues(t, 20, b.Stats().DeadLetters)
		require.Zero(t, b.Stats().Failing)
	})
}

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
