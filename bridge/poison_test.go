package bridge_test

import (
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
