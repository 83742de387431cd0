package viewcachetest

import (
	"encoding/binary"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/relay/viewcache"
)

// forged: whole views by a hand that can write to the store and has no key, at the true position, at an older one and
// at the last one there is. None is handed out, and each is removed; views are shared again at once.
func forged(s *story) {
	s.played()
	c := s.cache(s.Backend.Store, never)
	s.view(c, fence.Position{})
	first, _, err := s.Find(s.Context(), s.tile)
	require.NoError(s, err)
	s.ticks(2)
	head := s.Head(s.tile)
	s.view(c, head)
	now, _, err := s.Find(s.Context(), s.tile)
	require.NoError(s, err)
	base, tail, err := s.Values(s.Context(), s.tile, now, true)
	require.NoError(s, err)

	// The form before tags: a checksum, which needs no key.
	unsigned := func(b []byte) []byte {
		content := b[33:]
		old := append(binary.BigEndian.AppendUint64([]byte{1}, fence.Sum(content)), content...)
		require.Less(s, len(old), len(b))
		return old
	}
	changed := func(b []byte) []byte { // in its last byte, which no length or position is in
		b = append([]byte{}, b...)
		b[len(b)-1] ^= 1
		return b
	}
	last := at(fence.MaxNumber, fence.MaxNumber, 1)
	for name, p := range map[string]viewstore.Put{
		"another snapshot at the true position": {At: head, Base: now.Base, Tail: tail, Snapshot: changed(base)},
		"another tail at the true position":     {At: head, Base: now.Base, Tail: changed(tail), Snapshot: base},
		"what has a checksum": {At: head, Base: now.Base, Tail: unsigned(tail),
			Snapshot: unsigned(base)},
		"a newer one, at an older position": {At: first.At, Base: now.Base, Tail: tail, Snapshot: base},
		"the last version there is":         {At: last, Base: now.Base, Tail: tail, Snapshot: base},
		"the last version, of nothing":      {At: last, Tail: []byte("x")},
	} {
		s.Flush()
		p.Tile = s.tile
		verdict, err := s.Put(s.Context(), p)
		require.NoError(s, err, name)
		require.Equal(s, viewstore.Stored, verdict, name)
		c := s.cache(s.Backend.Store, never)
		v := s.view(c, fence.Position{})
		require.Equal(s, head, v.Position, name)
		require.EqualValues(s, 1, c.Stats().Corrupt, name)
		joins := s.cache(s.Backend.Store, always)
		require.Equal(s, head, s.view(joins, fence.Position{}).Position, name)
		require.EqualValues(s, 1, joins.Stats().Hits, "%s: it was replaced", name)
	}

	// A relay of another deployment shares nothing with this one; a key is replaced in steps.
	other := func(keys ...[]byte) *viewcache.Cache {
		c, err := viewcache.New(s.Backend.Store, s.log, keys, &viewcache.Config{Fresh: always})
		require.NoError(s, err)
		return c
	}
	a, b := Keys[0], []byte("the relays of another deployment")
	for _, step := range []struct {
		writer, reader [][]byte
		refused        uint64
	}{
		{[][]byte{b}, [][]byte{a}, 1},
		{[][]byte{a}, [][]byte{a, b}, 0},
		{[][]byte{a, b}, [][]byte{b, a}, 0},
		{[][]byte{b, a}, [][]byte{a, b}, 0},
		{[][]byte{b, a}, [][]byte{b}, 0},
	} {
		s.Flush()
		s.view(other(step.writer...), fence.Position{})
		c := other(step.reader...)
		require.Equal(s, head, s.view(c, fence.Position{}).Position)
		require.Equal(s, step.refused, c.Stats().Corrupt)
	}
}
