package streamtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// stat describes the tile.
func (s *scene) stat() stream.Stat {
	s.Helper()
	stats, err := s.Log.(stream.Inspector).Stat(s.Context(), []fence.TileID{s.tile})
	require.NoError(s, err)
	require.Len(s, stats, 1)
	return stats[0]
}

// statRows: a tile's description at each stage of its life.
func statRows(s *scene) {
	st := s.stat()
	require.Equal(s, stream.Stat{Tile: s.tile, Owner: fence.Owner{Tile: s.tile},
		Marks: map[stream.Consumer]stream.Mark{}}, st)
	seq, held := st.Floor()
	require.Zero(s, seq)
	require.Empty(s, held)

	entries := s.commit(1, 5)
	saved := s.save(entries[3])
	s.mark(stream.BridgeAcked, 4)
	s.mark(stream.Checkpointed, 2)
	require.NoError(s, s.Log.DeadLetter(s.Context(), stream.Poison{Tile: s.tile, Seq: 9, Reason: "test"}))
	st = s.stat()
	require.NoError(s, st.Err)
	require.Equal(s, fence.Owner{Tile: s.tile, Epoch: 1, Contact: "owner:1", Position: s.last, Tick: 5}, st.Owner)
	require.Equal(s, s.last, st.Last)
	require.Equal(s, 5, st.Entries)
	require.Equal(s, fence.Seq(1), st.First)
	require.Positive(s, st.Memory)
	require.Equal(s, 1, st.DeadLetters)
	require.True(s, st.HasSnapshot)
	require.WithinDuration(s, time.Now(), st.Snapshot.Taken, time.Minute)
	st.Snapshot.Taken = time.Time{}
	require.Equal(s, stream.SnapshotHead{Position: saved.Position, Tick: saved.Tick, Contact: "owner:1",
		Size: len(saved.Blob)}, st.Snapshot)
	require.Equal(s, fence.Seq(2), st.Marks[stream.Checkpointed].Seq)
	seq, held = st.Floor()
	require.Equal(s, fence.Seq(2), seq)
	require.Equal(s, stream.Checkpointed, held)

	trimmed, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease})
	require.NoError(s, err)
	require.Equal(s, seq, trimmed.Floor, "what Floor says is what Trim does")
	require.Equal(s, held, trimmed.Held)
	st = s.stat()
	require.Equal(s, fence.Seq(2), st.First)
	require.Equal(s, 4, st.Entries)

	s.DropOwner(s.tile)
	st = s.stat()
	require.False(s, st.Owner.Present())
	require.Equal(s, s.last, st.Last)
}

// statMany: many tiles come back in the order asked; damage to one is reported with it.
func statMany(s *scene) {
	s.commit(1, 1)
	asked := []fence.TileID{newTile(), s.tile, newTile(), s.tile}
	stats, err := s.Log.(stream.Inspector).Stat(s.Context(), asked)
	require.NoError(s, err)
	for i, t := range asked {
		require.Equal(s, t, stats[i].Tile)
		require.Equal(s, t == s.tile, stats[i].Owner.Present())
	}
	if s.CorruptOwner != nil {
		s.CorruptOwner(s.tile)
		require.ErrorIs(s, s.stat().Err, fence.ErrCorrupt)
	}
	_, err = s.Log.(stream.Inspector).Stat(s.Context(), []fence.TileID{0})
	var bad *fence.ArgumentError
	require.ErrorAs(s, err, &bad)
}
