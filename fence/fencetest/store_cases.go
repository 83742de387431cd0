package fencetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

func commitGenesis(s *scene) {
	c := s.install(3, fence.Position{})
	s.refuse(s.batch(3, fence.Position{}), fence.ErrNoOwner)
	s.commit(c)
	require.Equal(s, fence.Position{Epoch: 3, Seq: 1, Chain: c.Next().Chain}, s.owner().Position)
	require.NoError(s, CheckHistory(s.tile, s.Entries(s.tile)))
	// What the caller does to its buffer afterwards is its own business.
	want := c.Payload[0]
	c.Payload[0]++
	require.Equal(s, want, s.Entries(s.tile)[0].Payload[0])
	// Tiles share nothing.
	other := *s
	other.tile = newTile()
	other.found(1, 1)
	require.Len(s, s.Entries(s.tile), 1)
}

func commitDuplicate(s *scene) {
	c := s.install(1, fence.Position{})
	s.commit(c)
	s.repeat(c)
	c = s.batch(1, c.Next())
	s.commit(c)
	for range 3 {
		s.Age(s.tile, s.TTL/2)
		s.repeat(c)
	}
	// A claim that was confirmed meanwhile does not make it another batch.
	c.Install = true
	s.repeat(c)
	// Once something follows it, it is history: the answer is where that ends.
	next := s.batch(1, c.Next())
	s.commit(next)
	s.refuse(c, fence.ErrForked)
	s.repeat(next)
}

// commitTickClimbs: a commit that was delayed on its way and arrives after later ones, as far as it is
// accepted at all, does not set the tile's tick back.
func commitTickClimbs(s *scene) {
	c := s.found(1, 2)[1]
	s.commit(s.refresh(1, c.Next(), 50))
	s.repeat(c)
	require.EqualValues(s, 50, s.owner().Tick)
	r, err := s.Store.Commit(s.Context(), s.refresh(1, c.Next(), 40))
	require.NoError(s, err)
	require.Equal(s, c.Next(), r.Position)
	require.EqualValues(s, 50, s.owner().Tick)
	// A new owner counts from where it replayed to.
	install := s.install(2, c.Next())
	install.Tick = 45
	s.commit(install)
}

// commitTwin: a claimant whose epoch was granted twice, by an authority that was restored, forms the same
// first batch as its twin. It must not be taken for the owner's own retry, nor go on where the owner is.
func commitTwin(s *scene) {
	install := s.install(1, fence.Position{})
	install.Payload = nil
	s.commit(install)
	twin := install
	twin.Contact = "twin:1"
	s.refuse(twin, fence.ErrForked)
	next := s.batch(1, install.Next())
	next.Contact = twin.Contact
	s.refuse(next, fence.ErrForked)
	refresh := s.refresh(1, install.Next(), install.Tick+1)
	refresh.Contact = twin.Contact
	s.refuse(refresh, fence.ErrForked)
	require.Equal(s, contactOf(1), s.owner().Contact)
	s.repeat(install)
	// Without an owner hash the store cannot distinguish them, and the owner that the authority names may install.
	s.DropOwner(s.tile)
	_, err := s.Store.Commit(s.Context(), twin)
	require.NoError(s, err)
	require.Equal(s, twin.Contact, s.owner().Contact)
	s.refuse(install, fence.ErrForked)
}

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

func ownerNever(s *scene) {
	require.Equal(s, fence.Owner{Tile: s.tile}, s.owner())
	require.False(s, s.owner().Present())
	_, err := s.Store.Owner(s.Context(), 0)
	requireArgument(s.T, err, "tile")
	s.refuse(s.refresh(1, fence.Position{}, 1), fence.ErrNoOwner)
	s.refuse(s.install(1, fence.Position{Epoch: 1, Seq: 5, Chain: 7}), fence.ErrBehind)
}

// ownerUnreadable: a write on an owner hash that cannot be read is refused, and the error says so.
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
