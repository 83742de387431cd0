package bridge_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
)

func TestForwardsWhatWasCommitted(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 3)
		b, _ := r.run(nil, 1, 2)
		settle()
		r.commit(2, 7, 2)
		r.commit(1, 1, 2)
		settle()
		require.Equal(t, upTo(1, 5), r.pub.seqs(1))
		require.Equal(t, upTo(1, 2), r.pub.seqs(2))
		for _, f := range r.pub.all() {
			require.NoError(t, f.Verify(), "a frame is the entry, whole")
		}
		s := b.Stats()
		require.EqualValues(t, 7, s.Batches)
		require.Equal(t, 2, s.Tiles)
		require.Zero(t, s.Dropped)
		require.Zero(t, s.Gaps)
		require.Less(t, s.Lag, 200*time.Millisecond)
	})
}

// TestUnknownTime: an owner need not say when it formed a batch.
func TestUnknownTime(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, err := r.store.Commit(t.Context(), fence.Commit{Tile: 1, Epoch: 1, Contact: "owner", Install: true})
		require.NoError(t, err)
		b, _ := r.run(nil, 1)
		settle()
		require.Equal(t, upTo(1, 1), r.pub.seqs(1))
		require.Zero(t, b.Stats().Lag)
	})
}

func TestEachPublishedBatchIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 3)
		var published []bridge.PublishedInfo
		r.run(&bridge.Config{Hooks: bridge.Hooks{Published: func(i bridge.PublishedInfo) {
			published = append(published, i)
		}}}, 1)
		settle()
		r.commit(1, 1, 1)
		settle()
		require.Len(t, published, 2)
		require.Len(t, published[0].Earlier, 2)
		require.Equal(t, fence.Seq(1), published[0].Earlier[0].Seq)
		require.Equal(t, fence.Seq(2), published[0].Earlier[1].Seq)
		require.Equal(t, fence.Seq(3), published[0].Last.Seq)
		require.Nil(t, published[1].Earlier)
	})
}

func TestSupersededEpochIsDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 3)
		r.commit(1, 2, 1) // a takeover before the bridge looks
		var drops []bridge.DropInfo
		b, _ := r.run(bridge.Config{}.With(bridge.Tuning{Dropped: func(d bridge.DropInfo) {
			drops = append(drops, d)
		}}), 1)
		settle()
		r.commit(1, 2, 2)
		settle()
		require.Equal(t, upTo(4, 6), r.pub.seqs(1))
		require.Equal(t, bridge.Drops{Superseded: 3}, b.Stats().Dropped)
		require.Len(t, drops, 3)
		require.Equal(t, bridge.Superseded, drops[0].Reason)
		require.Equal(t, fence.Seq(1), drops[0].Position.Seq)
		time.Sleep(3 * time.Second)
		acked, _ := r.mark(1, stream.BridgeAcked)
		require.Equal(t, fence.Seq(6), acked.Seq, "what is dropped is settled")
	})
}

// TestNoOwnerHash: when it has expired, the highest epoch seen is the current one.
func TestNoOwnerHash(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 2)
		r.commit(1, 2, 2)
		time.Sleep(fence.DefaultTTL)
		b, _ := r.run(nil, 1)
		settle()
		require.Equal(t, upTo(3, 4), r.pub.seqs(1))
		require.Equal(t, bridge.Drops{Superseded: 2}, b.Stats().Dropped)
	})
}

// TestFloor: an owner hash that went back does not bring an old epoch back to life.
func TestFloor(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 2, 2)
		b, _ := r.run(nil, 1)
		settle()
		r.store.Update(1, func(s *memfence.State) {
			last := s.Entries[len(s.Entries)-1]
			e := fence.NewEntry(fence.Entry{Tile: 1, Kind: fence.KindRebase, Tick: 99, At: time.Now(),
				Position: fence.Position{Epoch: 1, Seq: last.Seq + 1}})
			s.Entries = append(s.Entries, e)
			s.Owner.Epoch, s.Owner.Position = 1, e.Position
		})
		settle()
		require.Equal(t, upTo(1, 2), r.pub.seqs(1))
		require.Equal(t, bridge.Drops{Fenced: 1}, b.Stats().Dropped)
	})
}

// TestUnvouched: an entry above the owner's epoch is one no owner hash vouches for.
func TestUnvouched(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 2, 1)
		r.commit(1, 3, 1)
		r.log.alter = func(c *stream.Chunk) { c.Owner.Epoch = 2 }
		b, _ := r.run(nil, 1)
		settle()
		require.Equal(t, upTo(1, 1), r.pub.seqs(1))
		require.Equal(t, bridge.Drops{Unvouched: 1}, b.Stats().Dropped)
	})
}

func TestRebaseMarkerIsForwarded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.rebase(1, 1, 1)
		b, _ := r.run(nil, 1)
		r.commit(1, 1, 1)
		settle()
		r.rebase(1, 2, fence.RebaseJump)
		r.commit(1, 2, 1)
		settle()
		require.Equal(t, []fence.Seq{1, 2, 2 + fence.RebaseJump, 3 + fence.RebaseJump}, r.pub.seqs(1))
		frames := r.pub.all()
		require.True(t, frames[0].Kind == fence.KindRebase && frames[2].Kind == fence.KindRebase)
		require.Zero(t, b.Stats().Gaps, "a rebase is no gap")
		require.Zero(t, b.Stats().DeadLetters, "its payload is not a batch")
	})
}

// TestTrimmedPastTheCursor: what is left is forwarded, and the hole is counted once.
func TestTrimmedPastTheCursor(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 2)
		var gaps []bridge.GapInfo
		cfg := bridge.Config{}.With(bridge.Tuning{Gap: func(g bridge.GapInfo) { gaps = append(gaps, g) }})
		_, stop := r.run(cfg, 1)
		settle()
		stop()
		r.commit(1, 1, 5)
		r.store.Update(1, func(s *memfence.State) { s.TrimBelow(5) })
		b, _ := r.run(cfg, 1)
		settle()
		r.store.Update(1, func(s *memfence.State) { // a break in the middle, seen by a running bridge
			last := s.Owner.Position
			prev := fence.Position{Epoch: 1, Seq: last.Seq + 2, Chain: 5}
			e := fence.NewEntry(fence.Entry{Tile: 1, Kind: fence.KindBatch, Prev: prev, Tick: 9,
				Position: fence.Position{Epoch: 1, Seq: last.Seq + 3}})
			s.Entries = append(s.Entries, e)
			s.Owner.Position = e.Position
		})
		settle()
		require.Equal(t, []fence.Seq{1, 2, 5, 6, 7, 10}, r.pub.seqs(1))
		require.EqualValues(t, 2, b.Stats().Gaps)
		require.Len(t, gaps, 2)
		require.Equal(t, fence.Seq(2), gaps[0].Have.Seq)
		require.Equal(t, fence.Seq(5), gaps[0].Next.Seq)
		require.Equal(t, fence.Seq(9), gaps[1].Prev.Seq)
	})
}

// loseTail is a failover after which a tile's history ends at seq. It returns what is gone.
func (r *rig) loseTail(tile fence.TileID, seq int) (lost []fence.Entry) {
	r.store.Update(tile, func(s *memfence.State) {
		lost = append(lost, s.Entries[seq:]...)
		s.Entries = s.Entries[:seq:seq]
		s.Owner.Position = s.Entries[seq-1].Position
		r.heads[tile] = s.Owner.Position
	})
	return lost
}

// putBack is a living owner that appends what a failover lost.
func (r *rig) putBack(tile fence.TileID, lost []fence.Entry) {
	r.store.Update(tile, func(s *memfence.State) {
		s.Entries = append(s.Entries, lost...)
		s.Owner.Position = lost[len(lost)-1].Position
		r.heads[tile] = s.Owner.Position
	})
}

// TestHistoryPutBack: what the living owner appends again is not forwarded again.
func TestHistoryPutBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 6)
		var went []bridge.RegressInfo
		b, _ := r.run(bridge.Config{}.With(bridge.Tuning{Regressed: func(i bridge.RegressInfo) {
			went = append(went, i)
		}}), 1)
		settle()
		lost := r.loseTail(1, 3)
		settle()
		require.Equal(t, []bridge.RegressInfo{{Tile: 1, Read: 6, Last: r.heads[1]}}, went)
		r.putBack(1, lost)
		r.commit(1, 1, 1)
		settle()
		require.Equal(t, upTo(1, 7), r.pub.seqs(1))
		require.Equal(t, bridge.Drops{Repeated: 6}, b.Stats().Dropped, "looked at again, and nothing else")
		require.Zero(t, b.Stats().Gaps)
		require.EqualValues(t, 1, b.Stats().Regressions)
	})
}

// TestHistoryReplaced: what a new owner wrote in the place of lost entries is forwarded, however much of
// it there is when the bridge looks.
func TestHistoryReplaced(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 8} {
		inBubble(t, func(t *testing.T, r *rig) {
			r.commit(1, 1, 6)
			b, _ := r.run(nil, 1)
			settle()
			r.loseTail(1, 3)
			r.commit(1, 2, n)
			settle()
			require.Equal(t, append(upTo(1, 6), upTo(4, 3+fence.Seq(n))...), r.pub.seqs(1), n)
			require.EqualValues(t, 1, b.Stats().Regressions)
			require.Zero(t, b.Stats().Gaps)
			require.LessOrEqual(t, len(r.log.takeReads()), 100)
		})
	}
}

// TestHistoryPutBackWhenTrimmed: looking back past the trimmed end is no gap.
func TestHistoryPutBackWhenTrimmed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 6)
		b, _ := r.run(nil, 1)
		settle()
		r.store.Update(1, func(s *memfence.State) { s.TrimBelow(3) })
		lost := r.loseTail(1, 2)
		settle()
		r.putBack(1, lost)
		r.commit(1, 1, 1)
		settle()
		require.Equal(t, upTo(1, 7), r.pub.seqs(1))
		require.Zero(t, b.Stats().Gaps)
	})
}

// TestOwnerHashDisagrees: an owner hash that names another position than the stream's last entry is not
// looked into for ever.
func TestOwnerHashDisagrees(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 3)
		b, _ := r.run(nil, 1)
		settle()
		r.store.Update(1, func(s *memfence.State) { s.Owner.Position.Chain++ })
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 1, b.Stats().Regressions)
		require.Equal(t, upTo(1, 3), r.pub.seqs(1))
	})
}

// TestHistoryShorterThanTheMark: a failover came while no bridge ran. What a new owner wrote is forwarded, and what
// was before is not forwarded again.
func TestHistoryShorterThanTheMark(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 6)
		_, stop := r.run(nil, 1)
		settle()
		stop()
		r.loseTail(1, 3)
		b, _ := r.run(nil, 1)
		settle()
		r.commit(1, 2, 2)
		settle()
		require.Equal(t, append(upTo(1, 6), upTo(4, 5)...), r.pub.seqs(1))
		require.EqualValues(t, 1, b.Stats().Regressions)
		require.Zero(t, b.Stats().Gaps)
	})
}

// TestHistoryRewrittenBeforeAnythingWasSent: a bridge that has taken over a quiet tile, and has had nothing to forward
// of it so far, forwards what a new owner writes in the place of what its predecessor forwarded.
func TestHistoryRewrittenBeforeAnythingWasSent(t *testing.T) {
	for name, test := range map[string]struct {
		look    time.Duration // between the take-over and the failover; zero: no bridge runs then
		entries int           // of the new owner, after the 10 that are left of 50
	}{
		"longer than the mark":                 {look: time.Second, entries: 60},
		"as long":                              {look: time.Second, entries: 40},
		"shorter":                              {look: time.Second, entries: 20},
		"longer, while no bridge was there":    {entries: 60},
		"as long, while no bridge was there":   {entries: 40},
		"shorter, while no bridge was there":   {entries: 20},
		"one entry, while no bridge was there": {entries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.commit(1, 1, 50)
				_, stop := r.run(nil, 1)
				time.Sleep(5 * time.Second)
				stop()
				if test.look > 0 {
					r.run(nil, 1)
					time.Sleep(test.look)
				}
				r.loseTail(1, 10)
				r.commit(1, 2, test.entries)
				if test.look == 0 {
					r.run(nil, 1)
				}
				time.Sleep(5 * time.Second)
				require.Equal(t, append(upTo(1, 50), upTo(11, r.heads[1].Seq)...), r.pub.seqs(1))
			})
		})
	}
}

// TestStrangerAtTheEnd: an entry that is not from an owner and stands behind the last that is does not
// look like a failover.
func TestStrangerAtTheEnd(t *testing.T) {
	for name, alter := range map[string]func(*fence.Entry){
		"poison":    func(e *fence.Entry) { e.Payload = []byte("nonsense") },
		"unvouched": func(e *fence.Entry) { e.Epoch++ },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.commit(1, 1, 2)
				r.store.Update(1, func(s *memfence.State) {
					e := fence.Entry{Tile: 1, Kind: fence.KindBatch, Prev: s.Owner.Position,
						Position: fence.Position{Epoch: 1, Seq: 3}, Tick: 9}
					alter(&e)
					s.Entries = append(s.Entries, fence.NewEntry(e))
				})
				b, _ := r.run(nil, 1)
				time.Sleep(5 * time.Second)
				s := b.Stats()
				require.EqualValues(t, 1, s.DeadLetters+s.Dropped.Unvouched)
				require.Zero(t, s.Regressions)
				require.Equal(t, upTo(1, 2), r.pub.seqs(1))
			})
		})
	}
}

// TestHistoryReplacedAboveWhatWasSent: entries that were not forwarded lead past the last one that was. If they are
// lost, what an owner writes in their place is forwarded.
func TestHistoryReplacedAboveWhatWasSent(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.commit(1, 1, 2)
		var before []fence.Entry
		r.store.Update(1, func(s *memfence.State) {
			before = slices.Clone(s.Entries)
			for seq := fence.Seq(3); seq <= 6; seq++ {
				e := fence.Entry{Tile: 1, Kind: fence.KindBatch, Prev: s.Entries[len(s.Entries)-1].Position,
					Position: fence.Position{Epoch: 1, Seq: seq}, Tick: 9, Payload: []byte("nonsense")}
				s.Entries = append(s.Entries, fence.NewEntry(e))
			}
		})
		b, _ := r.run(nil, 1)
		settle()
		require.EqualValues(t, 4, b.Stats().DeadLetters)
		r.store.Update(1, func(s *memfence.State) { s.Entries = before })
		r.commit(1, 1, 2)
		time.Sleep(5 * time.Second)
		require.Equal(t, upTo(1, 4), r.pub.seqs(1))
	})
}

// TestAStrangerThatFollowsNothing: an entry that no owner wrote, and that names another predecessor than the one that
// is there, is looked into once, also in a long history. What the owner writes above it is forwarded.
func TestAStrangerThatFollowsNothing(t *testing.T) {
	for _, batch := range []int{0, 8, 100} { // entries a read; zero is the default
		inBubble(t, func(t *testing.T, r *rig) {
			r.commit(1, 1, 600)
			b, _ := r.run(bridge.Config{}.With(bridge.Tuning{Batch: batch}), 1)
			time.Sleep(5 * time.Second)
			require.Equal(t, upTo(1, 600), r.pub.seqs(1))
			r.store.Update(1, func(s *memfence.State) {
				prev := s.Owner.Position
				prev.Chain++
				payload, _, err := (&stream.Batch{Events: [][]byte{[]byte("forged")}}).Encode()
				require.NoError(t, err)
				s.Entries = append(s.Entries, fence.NewEntry(fence.Entry{Tile: 1, Kind: fence.KindBatch, Prev: prev,
					Position: fence.Position{Epoch: 1, Seq: 601}, Tick: 700, Payload: payload}))
			})
			time.Sleep(5 * time.Second)
			r.rebase(1, 2, 2)
			time.Sleep(5 * time.Second)
			seqs := r.pub.seqs(1)
			require.Equal(t, fence.Seq(602), seqs[len(seqs)-1], "batch %d: %+v", batch, b.Stats())
			require.LessOrEqual(t, b.Stats().Regressions, uint64(2), "batch %d", batch)
		})
	}
}
