package streamtest

import (
	"errors"
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

func (s *scene) recover() stream.Recovery {
	s.Helper()
	r, err := stream.Recover(s.Context(), s.Log, s.tile)
	require.NoError(s, err)
	return r
}

func recoverRows(s *scene) {
	require.Equal(s, stream.Recovery{}, s.recover())

	entries := s.commit(1, 4)
	r := s.recover()
	require.False(s, r.HasSnapshot)
	s.requireEntries(entries, r.Entries)
	require.Equal(s, s.last, r.Position)

	for _, e := range []fence.Entry{entries[1], entries[3]} {
		s.save(e)
		r = s.recover()
		require.True(s, r.HasSnapshot)
		require.Equal(s, e.Position, r.Snapshot.Position)
		s.requireEntries(entries[e.Seq:], r.Entries)
		require.Equal(s, s.last, r.Position)
	}
	// Whether the tile has an owner does not matter.
	s.DropOwner(s.tile)
	require.Equal(s, r, s.recover())
}

// recoverLong: a tail of more than one read, and of exactly so many reads.
func recoverLong(s *scene) {
	entries := s.commit(1, stream.DefaultLimit)
	s.requireEntries(entries, s.recover().Entries)
	entries = append(entries, s.commit(2, stream.DefaultLimit+1)...)
	s.requireEntries(entries, s.recover().Entries)
}

func recoverTrimmed(s *scene) {
	entries := s.commit(1, 6)
	s.save(entries[3])
	s.trim(stream.Trimmed{Floor: 4, Removed: 3})
	r := s.recover()
	require.Equal(s, entries[3].Position, r.Snapshot.Position)
	s.requireEntries(entries[4:], r.Entries)
	// From an older position than is left, it must be noticed.
	var gap *stream.GapError
	for _, from := range []fence.Position{{}, entries[0].Position, entries[1].Position} {
		err := stream.Follow(s.Context(), s.Log, s.tile, from, func(*fence.Entry) error {
			s.Fatal("an entry that does not follow was passed on")
			return nil
		})
		require.ErrorIs(s, err, stream.ErrGap)
		require.ErrorAs(s, err, &gap)
		require.Equal(s, s.tile, gap.Tile)
		require.Equal(s, from, gap.Have)
		require.Equal(s, entries[3].Position, gap.Next.Position)
	}
}

func recoverRebase(s *scene) {
	s.save(s.commit(1, 3)[1])
	marker := s.rebase(2, 90)
	tail := s.commit(2, 2)
	r := s.recover()
	require.Equal(s, marker.Position, r.Snapshot.Position)
	require.Equal(s, "rebased", string(r.Snapshot.Blob))
	s.requireEntries(tail, r.Entries)
	require.Equal(s, s.last, r.Position)
}

// recoverWhileWritten: snapshots and trims that come between the reads of a recovery do not make it wrong.
func recoverWhileWritten(s *scene) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				r, err := stream.Recover(s.Context(), s.Log, s.tile)
				if errors.Is(err, stream.ErrGap) {
					continue // more snapshots than attempts: the caller gets an error
				}
				if !assert.NoError(s, err) {
					return
				}
				at := r.Snapshot.Position
				for _, e := range r.Entries {
					assert.Equal(s, at, e.Prev)
					at = e.Position
				}
				assert.Equal(s, at, r.Position)
			}
		})
	}
	for epoch := range fence.Epoch(30) {
		if epoch%7 == 3 {
			s.rebase(epoch+1, s.last.Seq+10)
		}
		for _, e := range s.commit(epoch+1, 3) {
			s.save(e)
			_, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease})
			require.NoError(s, err)
		}
	}
	close(done)
	wg.Wait()
	require.Equal(s, s.last, s.recover().Position)
}

func followGaps(s *scene) {
	entries := s.commit(1, 5)
	follow := func(from fence.Position) ([]fence.Entry, error) {
		var got []fence.Entry
		err := stream.Follow(s.Context(), s.Log, s.tile, from, func(e *fence.Entry) error {
			got = append(got, *e)
			return nil
		})
		return got, err
	}
	for i := range entries {
		got, err := follow(entries[i].Position)
		require.NoError(s, err)
		s.requireEntries(entries[i+1:], got)
	}
	// Another history under the same numbers does not follow.
	elsewhere := entries[2].Position
	elsewhere.Chain++
	got, err := follow(elsewhere)
	require.ErrorIs(s, err, stream.ErrGap)
	require.Empty(s, got)
	// The caller may stop.
	enough := errors.New("enough")
	n := 0
	err = stream.Follow(s.Context(), s.Log, s.tile, fence.Position{}, func(*fence.Entry) error {
		if n++; n == 2 {
			return enough
		}
		return nil
	})
	require.Equal(s, enough, err)
	require.Equal(s, 2, n)
}

// followRebase: a marker is passed on though it jumps; what follows it must follow it.
func followRebase(s *scene) {
	before := s.commit(1, 2)
	marker := s.rebase(2, 30)
	after := s.commit(2, 1)
	var got []fence.Entry
	require.NoError(s, stream.Follow(s.Context(), s.Log, s.tile, before[0].Position, func(e *fence.Entry) error {
		got = append(got, *e)
		return nil
	}))
	s.requireEntries([]fence.Entry{before[1], marker, after[0]}, got)
	require.Equal(s, fence.KindRebase, got[1].Kind)
}
