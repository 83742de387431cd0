package fencetest

import (
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// dropped is a tile with two batches under epoch 2 whose owner hash has expired.
func dropped(s *scene) []fence.Commit {
	commits := s.found(2, 2)
	s.DropOwner(s.tile)
	require.Equal(s, fence.Owner{Tile: s.tile}, s.owner())
	return commits
}

func missingRefused(s *scene) {
	commits := dropped(s)
	last := commits[1].Next()
	for _, epoch := range []fence.Epoch{1, 2, 3} {
		at := last
		at.Epoch = min(epoch, at.Epoch)
		s.refuse(s.batch(epoch, at), fence.ErrNoOwner)
		s.refuse(s.refresh(epoch, at, 30), fence.ErrNoOwner)
	}
	s.refuse(commits[1], fence.ErrNoOwner) // also what is already there
	beyond := s.after(2, last)
	s.refuse(s.batch(2, beyond), fence.ErrNoOwner)
	require.Equal(s, fence.Owner{Tile: s.tile}, s.owner())
}

func missingInstall(s *scene) {
	last := dropped(s)[1].Next()
	last = s.commit(s.install(2, last)).Position
	s.DropOwner(s.tile)
	s.commit(s.install(3, last))
	require.NoError(s, CheckHistory(s.tile, s.Entries(s.tile)))
}

// missingRows: without an owner hash the stream says which epoch is the last, and an install meets the
// same rows as with one.
func missingRows(s *scene) {
	commits := dropped(s)
	last := commits[1].Next()
	s.refuse(s.install(1, fence.Position{}), fence.ErrStale)
	s.refuse(s.install(3, commits[0].Next()), fence.ErrReplay)
	s.refuse(s.install(3, fence.Position{}), fence.ErrReplay)
	other := s.install(2, commits[0].Next())
	other.Payload = []byte("another history under the same numbers")
	s.refuse(other, fence.ErrForked)
	s.refuse(s.install(2, fence.Position{}), fence.ErrForked)
	elsewhere := last
	elsewhere.Chain++
	s.refuse(s.install(2, elsewhere), fence.ErrForked)
	beyond := s.after(2, last)
	s.refuse(s.install(2, beyond), fence.ErrBehind)
	s.refuse(s.install(3, beyond), fence.ErrBehind)
}

func missingDuplicate(s *scene) {
	c := dropped(s)[1]
	c.Install = true
	s.repeat(c)
	require.Equal(s, fence.Owner{Tile: s.tile, Epoch: 2, Contact: c.Contact, Position: c.Next(), Tick: c.Tick},
		s.owner())
	s.commit(s.batch(2, c.Next()))
}

// missingStream: when the stream is gone too, the snapshot says where the tile had come to at the least.
// Nobody starts it again from nothing.
func missingStream(s *scene) {
	commits := s.found(2, 3)
	at := commits[1]
	require.NoError(s, s.save(at.Next(), at.Tick, "state"))
	s.DropEntries(s.tile)
	last := s.commit(s.batch(2, commits[2].Next())).Position // what the owner hash vouches for goes on
	s.refuseSave(commits[2].Next(), at.Tick, fence.ErrUncommitted)
	s.DropEntries(s.tile)
	s.DropOwner(s.tile)
	require.Equal(s, at.Next(), s.last())
	s.refuse(s.install(1, fence.Position{}), fence.ErrStale)
	s.refuse(s.install(2, fence.Position{}), fence.ErrForked)
	s.refuse(s.install(3, fence.Position{}), fence.ErrReplay)
	s.refuse(s.install(2, last), fence.ErrBehind)
	s.refuse(s.batch(2, at.Next()), fence.ErrNoOwner)
	s.refuseRebase(s.rebase(2, 100, "another"), fence.ErrStale)
	s.refuseRebase(s.rebase(3, at.Next().Seq, "another"), fence.ErrBehind)
	s.commit(s.install(2, at.Next()))
	s.rebased(s.rebase(3, 100, "another"))
}

func ownerNever(s *scene) {
	require.Equal(s, fence.Owner{Tile: s.tile}, s.owner())
	require.False(s, s.owner().Present())
	_, err := s.Store.Owner(s.Context(), 0)
	requireArgument(s.T, err, "tile")
	s.refuse(s.refresh(1, fence.Position{}, 1), fence.ErrNoOwner)
	s.refuse(s.install(1, fence.Position{Epoch: 1, Seq: 5, Chain: 7}), fence.ErrBehind)
}

// ownerUnreadable: every writer is turned away from an owner hash that cannot be read, and told so.
func ownerUnreadable(s *scene) {
	if s.CorruptOwner == nil {
		return
	}
	for _, field := range []string{"head", "contact", "tick"} {
		s.tile = newTile()
		last := s.found(2, 2)[1].Next()
		s.CorruptOwner(s.tile, field)
		entries := s.Entries(s.tile)
		w := fence.SnapshotWrite{Tile: s.tile, Position: last, Tick: 11}
		for what, call := range map[string]func() error{
			"owner":   func() error { _, err := s.Store.Owner(s.Context(), s.tile); return err },
			"append":  func() error { _, err := s.Store.Commit(s.Context(), s.batch(2, last)); return err },
			"refresh": func() error { _, err := s.Store.Commit(s.Context(), s.refresh(2, last, 12)); return err },
			"install": func() error { _, err := s.Store.Commit(s.Context(), s.install(3, last)); return err },
			"rebase": func() error {
				_, err := s.Store.Rebase(s.Context(), s.rebase(3, last.Seq+9, "state"))
				return err
			},
			"snapshot": func() error { return s.Store.SaveSnapshot(s.Context(), w) },
		} {
			if field == "tick" && what == "append" {
				continue // it writes the tick anew
			}
			err := call()
			require.ErrorIs(s, err, fence.ErrCorrupt, "%s with an unreadable %s", what, field)
			require.NotErrorIs(s, err, fence.ErrUnknownOutcome)
			var corrupt *fence.CorruptError
			require.ErrorAs(s, err, &corrupt)
			require.Equal(s, s.tile, corrupt.Tile)
			require.Contains(s, corrupt.Detail, field)
			require.Equal(s, entries, s.Entries(s.tile))
		}
		_, found := s.Snapshot(s.tile)
		require.False(s, found)
		// The cure is to remove it.
		s.DropOwner(s.tile)
		s.commit(s.install(2, last))
	}
}
