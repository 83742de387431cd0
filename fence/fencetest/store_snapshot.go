package fencetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

func (s *scene) save(at fence.Position, tick fence.Tick, blob string) error {
	return s.Store.SaveSnapshot(s.Context(), fence.SnapshotWrite{Tile: s.tile, Position: at, Tick: tick,
		Blob: []byte(blob)})
}

// requireSnapshot compares the stored snapshot with want, whose checksum and time it works out.
func (s *scene) requireSnapshot(want fence.Snapshot) {
	s.Helper()
	got, found := s.Snapshot(s.tile)
	require.True(s, found)
	require.NoError(s, got.Verify(s.tile))
	require.WithinDuration(s, time.Now(), got.Taken, time.Minute)
	want.Sum, want.Taken = fence.Checksum(want.Blob), got.Taken
	if len(want.Blob) == 0 {
		require.Empty(s, got.Blob)
		want.Blob = got.Blob
	}
	require.Equal(s, want, got)
}

func snapshotSaved(s *scene) {
	commits := s.found(1, 4)
	for i, c := range commits[1:] {
		blob := string(rune('a'+i)) + "\x00\xff state"
		for range 2 { // twice is as good as once
			require.NoError(s, s.save(c.Next(), c.Tick, blob))
			s.requireSnapshot(fence.Snapshot{Position: c.Next(), Tick: c.Tick, Contact: contactOf(1),
				Blob: []byte(blob)})
		}
	}
	require.Len(s, s.Entries(s.tile), 4, "a snapshot leaves the stream alone")
	require.NoError(s, s.save(commits[3].Next(), commits[3].Tick, ""))
	s.requireSnapshot(fence.Snapshot{Position: commits[3].Next(), Tick: commits[3].Tick, Contact: contactOf(1)})
	// A later tick of the same position, after quiet ticks.
	last := commits[3].Next()
	s.commit(s.refresh(1, last, 80))
	require.NoError(s, s.save(last, 80, "quiet"))
	s.requireSnapshot(fence.Snapshot{Position: last, Tick: 80, Contact: contactOf(1), Blob: []byte("quiet")})
}
