package fencetest

import (
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

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
