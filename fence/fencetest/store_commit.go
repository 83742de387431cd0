package fencetest

import (
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
	// Without an owner hash they cannot be told apart, and the owner that the authority names may install.
	s.DropOwner(s.tile)
	_, err := s.Store.Commit(s.Context(), twin)
	require.NoError(s, err)
	require.Equal(s, twin.Contact, s.owner().Contact)
	s.refuse(install, fence.ErrForked)
}
