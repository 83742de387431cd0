package fencetest

import (
	"github.com/stretchr/testify/require"
	"time"

	"github.com/tilefence/tilefence/fence"
)

func commitGenesis(s *scene) {
	c := s.install(3, fence.Position{})
	s.refuse(s.batch(3, fence.Position{}), fence.ErrNoOwner)
	s.commit(c)
	require.Equal(s, fence.Position{Epoch: 3, Seq: 1, Chain: c.Next().Chain}, s.owner().Position)
	require.NoError(s, CheckHistory(s.tile, s.Entries(s.tile)))
	// Tiles share nothing.
	other := *s
	other.tile = newTile()
	other.found(1, 1)
	require.Len(s, s.Entries(s.tile), 1)
}

func commitAppend(s *scene) {
	last := s.found(1, 1)[0].Next()
	for range 5 {
		s.Age(s.tile, s.TTL/2)
		last = s.commit(s.batch(1, last)).Position
	}
	entries := s.Entries(s.tile)
	require.Len(s, entries, 6)
	require.NoError(s, CheckHistory(s.tile, entries))
	require.EqualValues(s, 6, last.Seq)
	// What the caller does to its buffer afterwards is its own business.
	c := s.batch(1, last)
	s.commit(c)
	want := c.Payload[0]
	c.Payload[0]++
	require.Equal(s, want, s.Entries(s.tile)[6].Payload[0])
}

func commitRefresh(s *scene) {
	last := s.found(1, 2)[1].Next()
	for tick := range fence.Tick(3) {
		s.Age(s.tile, s.TTL/2)
		s.commit(s.refresh(1, last, 20+tick))
	}
	// The batch after a refresh follows the batch before it.
	c := s.batch(1, last)
	c.Tick = 23
	s.commit(c)
}

func commitRefreshMisplaced(s *scene) {
	commits := s.found(1, 3)
	last := commits[2].Next()
	s.refuse(s.refresh(1, commits[1].Next(), 30), fence.ErrForked)
	s.refuse(s.refresh(1, s.after(1, last), 30), fence.ErrBehind)
	elsewhere := last
	elsewhere.Chain++
	s.refuse(s.refresh(1, elsewhere, 30), fence.ErrForked)
	s.extend(2, last, 1)
	s.refuse(s.refresh(1, last, 30), fence.ErrStale)
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

// commitDuplicateSuperseded: an owner that never heard the answer to its last batch is told about its
// successor, not that the batch is there; what the batch did, the successor has replayed.
func commitDuplicateSuperseded(s *scene) {
	commits := s.found(1, 2)
	s.extend(2, commits[1].Next(), 1)
	s.refuse(commits[1], fence.ErrStale)
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
	// Without an owner hash they cannot be told apart, and the owner that the authority names may install.
	s.DropOwner(s.tile)
	_, err := s.Store.Commit(s.Context(), twin)
	require.NoError(s, err)
	require.Equal(s, twin.Contact, s.owner().Contact)
	s.refuse(install, fence.ErrForked)
}

func commitInstall(s *scene) {
	last := s.found(1, 2)[1].Next()
	last = s.commit(s.install(2, last)).Position
	require.Equal(s, contactOf(2), s.owner().Contact)
	last = s.commit(s.batch(2, last)).Position
	// An owner may claim again under its own epoch, and epochs may be skipped.
	last = s.commit(s.install(2, last)).Position
	s.commit(s.install(9, last))
	require.NoError(s, CheckHistory(s.tile, s.Entries(s.tile)))
}

func commitInstallEmpty(s *scene) {
	last := s.found(1, 1)[0].Next()
	c := s.install(2, last)
	c.Payload = nil
	s.commit(c)
	require.Len(s, s.Entries(s.tile), 2)
	s.repeat(c)
	s.commit(s.refresh(2, c.Next(), 20))
}

func commitStale(s *scene) {
	commits := s.found(2, 2)
	last := s.extend(5, commits[1].Next(), 2)[1].Next()
	for _, epoch := range []fence.Epoch{1, 2, 3, 4} {
		at := last
		at.Epoch = min(at.Epoch, epoch)
		s.refuse(s.batch(epoch, at), fence.ErrStale)
		s.refuse(s.install(epoch, at), fence.ErrStale)
		s.refuse(s.refresh(epoch, at, 99), fence.ErrStale)
		s.refuse(s.install(epoch, fence.Position{}), fence.ErrStale)
		at.Seq += 100
		s.refuse(s.install(epoch, at), fence.ErrStale)
	}
	s.refuse(commits[1], fence.ErrStale)
	s.commit(s.batch(5, last))
}

func commitReplay(s *scene) {
	commits := s.found(1, 3)
	for _, prev := range []fence.Position{{}, commits[0].Next(), commits[1].Next()} {
		s.refuse(s.install(2, prev), fence.ErrReplay)
	}
	elsewhere := commits[2].Next()
	elsewhere.Chain++
	s.refuse(s.install(2, elsewhere), fence.ErrReplay)
	s.commit(s.install(2, commits[2].Next()))
}

func commitBehind(s *scene) {
	lost := s.found(1, 2)
	beyond := s.batch(1, lost[1].Next())
	s.refuse(s.batch(1, beyond.Next()), fence.ErrBehind)
	s.refuse(s.install(1, beyond.Next()), fence.ErrBehind)
	s.refuse(s.refresh(1, beyond.Next(), 30), fence.ErrBehind)
	// Also for a successor that replayed what a failover has lost since.
	s.refuse(s.install(2, beyond.Next()), fence.ErrBehind)
	s.refuse(s.batch(2, beyond.Next()), fence.ErrBehind)
	// The owner puts back what was lost, then goes on.
	s.commit(beyond)
	s.commit(s.batch(1, beyond.Next()))
}

func commitForked(s *scene) {
	commits := s.found(1, 3)
	last := commits[2].Next()
	other := s.batch(1, commits[1].Next())
	other.Payload = []byte("another history under the same numbers")
	s.refuse(other, fence.ErrForked)
	s.refuse(s.batch(1, other.Next()), fence.ErrForked)
	s.refuse(s.install(1, other.Next()), fence.ErrForked)
	s.refuse(commits[0], fence.ErrForked)
	for _, change := range []func(*fence.Commit){
		func(c *fence.Commit) { c.Tick++ },
		func(c *fence.Commit) { c.At = c.At.Add(time.Second) },
		func(c *fence.Commit) { c.Private = []byte{0} },
		func(c *fence.Commit) { c.Payload = append(c.Payload, 0) },
		func(c *fence.Commit) { c.Prev.Chain++ },
	} {
		c := commits[2]
		change(&c)
		s.refuse(c, fence.ErrForked)
	}
	s.commit(s.batch(1, last))
}

// commitUnheardOf: a higher epoch that does not claim to be new was installed somewhere this store does
// not remember. It must ask the authority first.
func commitUnheardOf(s *scene) {
	last := s.found(1, 2)[1].Next()
	s.refuse(s.batch(2, last), fence.ErrNoOwner)
	s.refuse(s.refresh(2, last, 30), fence.ErrNoOwner)
	s.refuse(s.batch(2, fence.Position{}), fence.ErrNoOwner)
	s.commit(s.install(2, last))
}
