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

func (s *scene) refuseSave(at fence.Position, tick fence.Tick, reason error) {
	s.Helper()
	s.refused(reason, at.Epoch, func() error { return s.save(at, tick, "refused") })
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

func snapshotWriter(s *scene) {
	s.refuseSave(fence.Position{Epoch: 1, Seq: 1, Chain: 5}, 1, fence.ErrNoOwner)
	c := s.found(2, 2)[1]
	at := c.Next()
	for _, epoch := range []fence.Epoch{1, 3} {
		at.Epoch = epoch
		reason := fence.ErrStale
		if epoch > 2 {
			reason = fence.ErrNoOwner // this store never heard of it
		}
		s.refuseSave(at, c.Tick, reason)
	}
	at = c.Next()
	s.DropOwner(s.tile)
	s.refuseSave(at, c.Tick, fence.ErrNoOwner)
	s.commit(s.install(3, at))
	s.refuseSave(at, c.Tick, fence.ErrStale)
}

func snapshotRegress(s *scene) {
	commits := s.found(1, 4)
	require.NoError(s, s.save(commits[2].Next(), commits[2].Tick, "at three"))
	s.refuseSave(commits[1].Next(), commits[1].Tick, fence.ErrRegress)
	s.refuseSave(commits[0].Next(), 9999, fence.ErrRegress)
	// The same position at an earlier tick is an earlier snapshot, delayed on its way.
	s.refuseSave(commits[2].Next(), commits[2].Tick-1, fence.ErrRegress)
	// A successor's is compared with its predecessor's.
	next := s.install(2, commits[3].Next())
	next.Tick = 1
	s.commit(next)
	require.NoError(s, s.save(next.Next(), 1, "the successor's first"))
	s.requireSnapshot(fence.Snapshot{Position: next.Next(), Tick: 1, Contact: contactOf(2),
		Blob: []byte("the successor's first")})
}

func snapshotUncommitted(s *scene) {
	commits := s.found(1, 3)
	last := commits[2]
	s.refuseSave(s.after(1, last.Next()), last.Tick, fence.ErrUncommitted)
	s.refuseSave(last.Next(), last.Tick+1, fence.ErrUncommitted)
	for _, c := range commits {
		elsewhere := c.Next()
		elsewhere.Chain++
		s.refuseSave(elsewhere, c.Tick, fence.ErrUncommitted)
	}
	// An entry of the predecessor is not a position of this epoch.
	next := s.install(2, last.Next())
	s.commit(next)
	theirs := last.Next()
	theirs.Epoch = 2
	s.refuseSave(theirs, last.Tick, fence.ErrUncommitted)
	// A position inside a jump was never committed either.
	at := s.rebased(s.rebase(3, 100, "state"))
	s.commit(s.batch(3, at))
	at.Seq = 101
	s.refuseSave(at, 20, fence.ErrUncommitted)
	at.Seq = 50
	s.refuseSave(at, 20, fence.ErrRegress)
}

// snapshotNoRefresh: saving snapshots does not keep an owner hash alive; only ticking does.
func snapshotNoRefresh(s *scene) {
	c := s.found(1, 1)[0]
	s.Age(s.tile, s.TTL/2)
	require.NoError(s, s.save(c.Next(), c.Tick, "state"))
	require.LessOrEqual(s, s.Remaining(s.tile), s.TTL/2)
	require.Equal(s, fence.Owner{Tile: s.tile, Epoch: 1, Contact: c.Contact, Position: c.Next(), Tick: c.Tick},
		s.owner())
}
