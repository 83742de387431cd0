package fencetest

import (
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

func (s *scene) rebase(epoch fence.Epoch, seq fence.Seq, blob string) fence.Rebase {
	return fence.Rebase{Tile: s.tile, Epoch: epoch, Contact: contactOf(epoch), Seq: seq,
		Tick: min(fence.Tick(seq)+10, fence.MaxNumber), Blob: []byte(blob)}
}

// rebased presents r and requires that snapshot, marker entry and owner hash are what it says.
func (s *scene) rebased(r fence.Rebase) fence.Position {
	s.Helper()
	before := s.image()
	receipt, err := s.Store.Rebase(s.Context(), r)
	require.NoError(s, err)
	require.Equal(s, fence.Receipt{Position: r.Next(), Replicas: receipt.Replicas}, receipt)
	after := s.image()
	require.Equal(s, fence.Owner{Tile: s.tile, Epoch: r.Epoch, Contact: r.Contact, Position: r.Next(), Tick: r.Tick},
		after.Owner)
	n := len(before.Entries)
	require.Len(s, after.Entries, n+1)
	require.Equal(s, before.Entries, after.Entries[:n])
	s.requireEntry(after.Entries[n], r.Entry())
	s.requireSnapshot(fence.Snapshot{Position: r.Next(), Tick: r.Tick, Contact: r.Contact, Blob: r.Blob})
	s.requireFresh()
	return r.Next()
}

func (s *scene) refuseRebase(r fence.Rebase, reason error) {
	s.Helper()
	s.refused(reason, r.Epoch, func() error {
		receipt, err := s.Store.Rebase(s.Context(), r)
		require.Zero(s, receipt)
		return err
	})
}

func rebaseGenesis(s *scene) {
	at := s.rebased(s.rebase(1, 1, "a new tile"))
	at = s.commit(s.batch(1, at)).Position
	s.commit(s.install(2, at))
	require.NoError(s, CheckHistory(s.tile, s.Entries(s.tile)))
	s.tile = newTile()
	s.rebased(s.rebase(7, 5000, "")) // a restored one, and nothing in it
}

func rebaseDuplicate(s *scene) {
	s.found(1, 2)
	r := s.rebase(2, 100, "state")
	at := s.rebased(r)
	again := func(r fence.Rebase) {
		s.Helper()
		entries := s.Entries(s.tile)
		receipt, err := s.Store.Rebase(s.Context(), r)
		require.NoError(s, err)
		require.Equal(s, fence.Receipt{Position: at, Duplicate: true, Replicas: receipt.Replicas}, receipt)
		require.Equal(s, entries, s.Entries(s.tile))
		require.Equal(s, at, s.owner().Position)
		s.requireFresh()
	}
	s.Age(s.tile, s.TTL/2)
	again(r)
	// An owner that read a longer history meanwhile and jumps further is answered with the first jump.
	further := r
	further.Seq = 200
	again(further)
	s.DropOwner(s.tile)
	again(r)
	require.Equal(s, r.Contact, s.owner().Contact)
	// Delayed on its way, it does not set the tick back.
	s.commit(s.refresh(2, at, r.Tick+9))
	again(r)
	require.Equal(s, r.Tick+9, s.owner().Tick)
	// The twin that was granted the same epoch is not answered with it.
	twin := r
	twin.Contact = "twin:1"
	s.refuseRebase(twin, fence.ErrStale)
	// Once something follows it, it is history.
	next := s.batch(2, at)
	next.Tick = r.Tick + 10
	s.commit(next)
	s.refuseRebase(r, fence.ErrStale)
}

func rebaseStale(s *scene) {
	commits := s.found(4, 2)
	for _, epoch := range []fence.Epoch{1, 3, 4} {
		s.refuseRebase(s.rebase(epoch, 100, "state"), fence.ErrStale)
		s.refuseRebase(s.rebase(epoch, 1, "state"), fence.ErrStale)
	}
	s.DropOwner(s.tile)
	s.refuseRebase(s.rebase(4, 100, "state"), fence.ErrStale)
	at := s.rebased(s.rebase(5, 100, "state"))
	s.refuseRebase(s.rebase(5, 200, "another state"), fence.ErrStale)
	s.DropOwner(s.tile)
	s.refuseRebase(s.rebase(5, 200, "another state"), fence.ErrStale)
	s.refuse(s.install(4, commits[1].Next()), fence.ErrStale)
	s.commit(s.install(5, at))
}

// rebaseReplaces: a rebase that names what it replaces is refused where the history ends elsewhere.
func rebaseReplaces(s *scene) {
	over := func(r fence.Rebase, at fence.Position) fence.Rebase {
		r.Replaces = &at
		return r
	}
	at := s.rebased(over(s.rebase(1, 1, "a new tile"), fence.Position{}))
	before := at
	at = s.commit(s.batch(1, at)).Position
	other := at
	other.Chain++
	for _, dropped := range []bool{false, true} {
		for _, end := range []fence.Position{{}, before, other, {Epoch: 1, Seq: at.Seq + 1, Chain: at.Chain}} {
			s.refuseRebase(over(s.rebase(2, 100, "state"), end), fence.ErrBehind)
		}
		if !dropped {
			s.DropOwner(s.tile)
		}
	}
	r := over(s.rebase(2, 100, "state"), at)
	s.rebased(r)
	receipt, err := s.Store.Rebase(s.Context(), r)
	require.NoError(s, err)
	require.True(s, receipt.Duplicate, "the same rebase is answered again, although the history ends with it now")
	s.tile = newTile()
	s.refuseRebase(over(s.rebase(1, 1, "a new tile"), at), fence.ErrBehind)
}
