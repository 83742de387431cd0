package bridge_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
)

// lateness is how long after its commit the last entry of a tile was published.
func (p *watchedPublisher) lateness(tile fence.TileID) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.frames) - 1; i >= 0; i-- {
		if f := p.frames[i]; f.Tile == tile {
			return f.at.Sub(f.At)
		}
	}
	return -1
}

// TestHintedTileWaitsForNoPoll: while hints arrive a quiet tile is hardly read, and an entry with a hint is
// published at once.
func TestHintedTileWaitsForNoPoll(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b, _ := r.run(nil, 1, 2)
		b.Hints(true)
		time.Sleep(time.Minute)
		r.log.takeReads()
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 2*600/13.2, len(r.log.takeReads()), 20, "every HintedPoll, not all at once")
		for range 20 {
			r.commit(1, 1, 1)
			b.Wake(1)
			time.Sleep(3 * ms) // a pass may just have begun
			require.Equal(t, r.heads[1].Seq, fence.Seq(len(r.pub.seqs(1))))
			time.Sleep(777 * ms)
		}
		require.Equal(t, upTo(1, 20), r.pub.seqs(1))
		require.Zero(t, b.Stats().HintsMissed)
	})
}

// TestBusyHintedTileIsNotPolled: about one read a batch, not one every MinPoll.
func TestBusyHintedTileIsNotPolled(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b, _ := r.run(nil, 1)
		b.Hints(true)
		time.Sleep(time.Second)
		for range 10 {
			r.commit(1, 1, 1)
			b.Wake(1)
			time.Sleep(500 * ms)
		}
		r.log.takeReads()
		for range 100 {
			r.commit(1, 1, 1)
			b.Wake(1)
			time.Sleep(500 * ms)
		}
		require.LessOrEqual(t, len(r.log.takeReads()), 101)
	})
}

// TestLostHint: an entry whose hint is lost is found by the next poll, counted, and its tile polled as without
// hints for a while.
func TestLostHint(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b, _ := r.run(nil, 1)
		b.Hints(true)
		time.Sleep(time.Minute)
		r.commit(1, 1, 1)
		time.Sleep(15*time.Second + time.Second)
		require.Equal(t, upTo(1, 1), r.pub.seqs(1))
		require.LessOrEqual(t, r.pub.lateness(1), 15*time.Second)
		require.EqualValues(t, 1, b.Stats().HintsMissed)
		for range 5 {
			time.Sleep(300 * ms)
			r.commit(1, 1, 1)
			time.Sleep(105 * ms)
			require.LessOrEqual(t, r.pub.lateness(1), 100*ms)
		}
		require.EqualValues(t, 1, b.Stats().HintsMissed, "they are not relied on")
		time.Sleep(2 * time.Minute)
		r.log.takeReads()
		time.Sleep(time.Minute)
		require.Less(t, len(r.log.takeReads()), 10, "they are again")
	})
}

// TestLateHint: a poll that is quicker than the hint is no missed hint.
func TestLateHint(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b, _ := r.run(nil, 1)
		b.Hints(true)
		time.Sleep(time.Minute)
		for range 100 {
			r.log.takeReads()
			for len(r.log.takeReads()) == 0 {
				time.Sleep(ms)
			}
			// It has just been read: have the next poll meet an entry, and its hint come after.
			r.commit(1, 1, 1)
			for len(r.pub.seqs(1)) < int(r.heads[1].Seq) {
				time.Sleep(ms)
			}
			b.Wake(1)
		}
		require.Zero(t, b.Stats().HintsMissed)
	})
}

// TestTickingTileMissesOneHint: an entry whose hint is lost comes with the next hint, or after a second if there is
// none.
func TestTickingTileMissesOneHint(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b, _ := r.run(nil, 1)
		b.Hints(true)
		for i := range 30 {
			r.commit(1, 1, 1)
			if i%20 != 9 {
				b.Wake(1)
				time.Sleep(3 * ms) // a pass may just have begun
				require.Equal(t, upTo(1, fence.Seq(i+1)), r.pub.seqs(1))
			}
			time.Sleep(500 * ms)
		}
		time.Sleep(time.Second - 500*ms)
		require.Equal(t, upTo(1, 30), r.pub.seqs(1), "the last one's hint was lost")
		require.LessOrEqual(t, r.pub.lateness(1), time.Second)
		time.Sleep(100 * ms)
		require.LessOrEqual(t, b.Stats().HintsMissed, uint64(2))
		require.Positive(t, b.Stats().HintsMissed)
	})
}

// TestAllHintsLost: the source says that hints arrive, and none do. The bridge finds out, and polls.
func TestAllHintsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		ids := firstTiles(400)
		b, _ := r.run(nil, ids...)
		b.Hints(true)
		time.Sleep(time.Minute)
		for _, id := range ids {
			r.commit(id, 1, 1)
		}
		time.Sleep(12 * time.Second) // by then enough were missed, though not all tiles have been polled in their turn
		require.Greater(t, b.Stats().HintsMissed, uint64(16*8-1))
		for _, id := range ids {
			r.commit(id, 1, 1)
		}
		time.Sleep(110 * ms)
		for _, id := range ids {
			require.Equal(t, upTo(1, 2), r.pub.seqs(id))
		}
		require.Less(t, b.Stats().HintsMissed, uint64(300), "they are not relied on as a whole")
	})
}

// TestHintsGoDown: all tiles are due within MaxPoll then.
func TestHintsGoDown(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		ids := firstTiles(300)
		b, _ := r.run(nil, ids...)
		b.Hints(true)
		time.Sleep(time.Minute)
		for _, id := range ids {
			r.commit(id, 1, 1)
		}
		b.Hints(false)
		time.Sleep(105 * ms)
		for range 3 {
			for _, id := range ids {
				require.Equal(t, upTo(1, r.heads[id].Seq), r.pub.seqs(id))
				r.commit(id, 1, 1)
			}
			time.Sleep(105 * ms)
		}
		require.Zero(t, b.Stats().HintsMissed)
		r.log.takeReads()
		time.Sleep(10 * time.Second)
		read := map[fence.TileID]time.Time{}
		for _, call := range r.log.takeReads() {
			for _, c := range call.cursors {
				if before, ok := read[c.Tile]; ok {
					require.LessOrEqual(t, call.at.Sub(before), 105*ms)
				}
				read[c.Tile] = call.at
			}
		}
		require.Len(t, read, len(ids))
	})
}

// TestHintsOneByOne: they do not make a pass each.
func TestHintsOneByOne(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b, _ := r.run(nil, 1, 2, 3, 4, 5)
		b.Hints(true)
		time.Sleep(time.Minute)
		r.log.takeReads()
		for i := range 2000 {
			b.Wake(fence.TileID(1 + i%5))
			time.Sleep(ms / 2)
		}
		require.LessOrEqual(t, len(r.log.takeReads()), 401)
	})
}

// TestHintOfARemovedTile: a hint that still waits when its tile is removed does nothing to the tile that is added in
// its place.
func TestHintOfARemovedTile(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b, stop := r.run(nil, 1, 2, 3)
		b.Hints(true)
		time.Sleep(time.Minute)
		hang := make(chan struct{})
		r.pub.set(func(context.Context, []fanout.Message) (int, error) {
			<-hang
			return -1, nil
		})
		for tile := range fence.TileID(2) { // both passes are busy, so hints wait
			r.commit(2+tile, 1, 1)
			b.Wake(2 + tile)
			time.Sleep(5 * ms)
		}
		b.Wake(1)
		b.Remove(1)
		synctest.Wait()
		require.NoError(t, b.Add(1))
		synctest.Wait()
		r.pub.set(nil)
		close(hang)
		settle()
		r.commit(1, 1, 1)
		b.Wake(1)
		settle()
		require.Equal(t, upTo(1, 1), r.pub.seqs(1))
		stop()
		acked, _ := r.mark(1, bridgeAcked)
		require.Equal(t, fence.Seq(1), acked.Seq)
	})
}

// TestHintsFromFanout: the bridge subscribes to the hints of its fan-out by itself, for as long as it runs.
func TestHintsFromFanout(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		broker := memfanout.New()
		_, stop := r.hinted(broker, nil, 1, 2, 3)
		time.Sleep(time.Minute)
		r.log.takeReads()
		time.Sleep(time.Minute)
		require.Less(t, len(r.log.takeReads()), 30)
		for tile := range fence.TileID(3) {
			r.commit(tile+1, 1, 1)
			require.NoError(t, broker.PublishHints(context.Background(), []fence.TileID{tile + 1}))
			time.Sleep(3 * ms)
			require.Equal(t, upTo(1, 1), r.pub.seqs(tile+1))
		}
		stop()
		_, stop = r.hinted(broker, nil, 1)
		stop()
	})
}

// TestHintsLapseForAMoment: the source of hints was away so briefly that the bridge never saw it down. What was
// committed meanwhile has had no hint, and is found within 100 ms.
func TestHintsLapseForAMoment(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b, _ := r.run(nil, 1, 2)
		b.Hints(true)
		for range 5 {
			time.Sleep(20 * time.Second)
			r.commit(1, 1, 1)
			b.Hints(false)
			b.Hints(true)
			time.Sleep(101 * ms)
			synctest.Wait()
			require.Equal(t, upTo(1, r.heads[1].Seq), r.pub.seqs(1))
		}
	})
}
