package tile_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/tile"
)

func TestLossIsExactWhereTheOwnerHashIsLeft(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{SnapshotEvery: 5, Timeouts: tile.Timeouts{BootTimeout: time.Second}})
		a.words(t, "a", 12)
		saved := s.save(t, sh)
		a.words(t, "b", 20)
		a.kill()
		<-a.done
		var last fence.Tick
		s.w.store.Update(testTile, func(m *memfence.State) { // somebody deleted the others
			last = m.Owner.Tick
			m.Entries, m.Snapshot = nil, nil
		})
		b := s.spawn("b:1", sh, tile.Config{TakeOver: true})
		b.eventually(t, tile.Serving, 10*time.Second)
		require.Len(t, b.reports(), 1)
		i := b.reports()[0]
		assert.True(t, i.Exact)
		assert.Equal(t, last-saved.Tick, i.LostTicks)
		assert.Equal(t, time.Duration(i.LostTicks)*500*time.Millisecond, i.LostFor)
		assert.Equal(t, saved.Position, i.From)
		assert.Equal(t, b.Status().Position, i.At)
		require.NoError(t, b.drain())
	})
}

// A follower that has watched the owner counts from the last tick it saw, and not all the time in which nobody
// played.
func TestFollowerKnowsBetterWhatWasLost(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{SnapshotEvery: 5})
		a.words(t, "a", 12)
		saved := s.save(t, sh)
		f := s.spawn("f:1", sh, tile.Config{Follow: true, SuspectAfter: tile.NeverSuspect})
		all := a.words(t, "b", 20)
		time.Sleep(10 * time.Second)
		played := a.Status().Tick
		a.kill()
		<-a.done
		time.Sleep(5 * time.Second)
		s.lose()
		time.Sleep(time.Hour)
		f.TakeOver(tile.Ordered)
		f.eventually(t, tile.Serving, 30*time.Second)
		require.Len(t, f.reports(), 1)
		i := f.reports()[0]
		assert.GreaterOrEqual(t, i.LostTicks, played-saved.Tick, "of them %d with a word", len(all))
		assert.LessOrEqual(t, i.LostTicks, played-saved.Tick+25)
		assert.False(t, i.Exact)
		require.NoError(t, f.drain())
	})
}

// What a stream has lost is reported by the owner that restores it from a checkpoint that is later.
func TestLossIsReportedWhereTheStreamEndsBeforeTheCheckpoint(t *testing.T) {
	for _, class := range []tile.Durability{tile.Checkpointed, tile.WriteThrough} {
		onShard(t, func(t *testing.T, s *shard, sh *shelf) {
			s.acks = 0
			a := s.spawn("a:1", sh, tile.Config{SnapshotEvery: 5, ConfirmEvery: never, Durability: class})
			a.words(t, "a", 12)
			saved := s.save(t, sh)
			a.words(t, "b", 3)
			a.kill()
			<-a.done
			played := a.Status().Tick
			s.fail(0)
			b := s.spawn("b:1", sh, tile.Config{TakeOver: true, Durability: class})
			b.eventually(t, tile.Serving, 10*time.Second)
			require.Len(t, b.reports(), 1)
			i := b.reports()[0]
			if class == tile.WriteThrough {
				assert.Zero(t, i.LostTicks)
				assert.True(t, i.Exact)
				assert.Equal(t, played, i.SnapshotTick, "the journal's last")
			} else {
				assert.GreaterOrEqual(t, i.LostTicks, played-saved.Tick)
				assert.Equal(t, saved.Tick, i.SnapshotTick)
				assert.False(t, i.Exact)
			}
			require.NoError(t, b.drain())
		})
	}
}
