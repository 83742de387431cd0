package fencetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// RunWorld runs the conformance suite of fence.WorldKeeper. open is called several times for each test, and gives back
// ends on one server that no other test uses under the same names: of the world without a name, or one that is named
// after the test. A back end that has one world for all that it keeps, such as a file, ignores the name and sets alone.
func RunWorld(t *testing.T, alone bool, open func(t *testing.T, w fence.World) fence.WorldKeeper) {
	unique := uniqueWorld
	if alone {
		unique = func() fence.World { return fence.World{ID: fence.NewWorldID()} }
	}
	t.Run("Recorded", func(t *testing.T) {
		w := unique()
		worldEntered(t, w, open)
		name := fence.World{Name: w.Name}
		require.Equal(t, w, enter(t, open(t, name), fence.World{}), "another process reads it")
	})
	t.Run("Refused", func(t *testing.T) { worldRefused(t, unique(), open) })
	if !alone {
		t.Run("Named", func(t *testing.T) { worldsSideBySide(t, unique(), unique(), open) })
	}
}

// RunWorldUnrecorded is RunWorld for a back end that keeps no record: it knows the world that its own process has
// entered, and does not read that of another.
func RunWorldUnrecorded(t *testing.T, open func(t *testing.T, w fence.World) fence.WorldKeeper) {
	t.Run("Entered", func(t *testing.T) { worldEntered(t, uniqueWorld(), open) })
	t.Run("Refused", func(t *testing.T) { worldRefused(t, uniqueWorld(), open) })
	t.Run("Named", func(t *testing.T) { worldsSideBySide(t, uniqueWorld(), uniqueWorld(), open) })
}

// uniqueWorld is a world that no other test uses.
func uniqueWorld() fence.World {
	return fence.World{Name: "w" + fence.NewWorldID().String()[:maxUnique], ID: fence.NewWorldID()}
}

// maxUnique is how many random digits the names of worlds in tests have.
const maxUnique = 12

func enter(t *testing.T, k fence.WorldKeeper, w fence.World) fence.World {
	t.Helper()
	found, err := k.EnterWorld(t.Context(), w)
	require.NoError(t, err)
	return found
}

// worldEntered: the first world whose ID is known is that of the back end.
func worldEntered(t *testing.T, w fence.World, open func(*testing.T, fence.World) fence.WorldKeeper) {
	name := fence.World{Name: w.Name}
	k := open(t, w)
	require.Equal(t, name, enter(t, k, fence.World{}), "reading records nothing")
	require.Equal(t, name, enter(t, k, name), "without an ID there is nothing to record")
	require.Equal(t, w, enter(t, k, w))
	for _, known := range []fence.World{w, name, {}} {
		require.Equal(t, w, enter(t, k, known), "%v", known)
	}
}

// worldRefused: a world of another ID or name is refused, and nothing is changed.
func worldRefused(t *testing.T, w fence.World, open func(*testing.T, fence.World) fence.WorldKeeper) {
	k := open(t, w)
	require.Equal(t, w, enter(t, k, w))
	for _, other := range []fence.World{
		{Name: w.Name, ID: fence.NewWorldID()}, {Name: w.Name + "x", ID: w.ID}, {Name: "x" + w.Name},
	} {
		_, err := k.EnterWorld(t.Context(), other)
		require.ErrorIs(t, err, fence.ErrWorld, "%v", other)
		var refused *fence.WorldError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, other, refused.Want)
		require.Equal(t, w.Name, refused.Found.Name)
		require.NotEmpty(t, refused.Store)
		require.Equal(t, w, enter(t, k, fence.World{}))
	}
}

// worldsSideBySide: worlds of two names are on one server at once.
func worldsSideBySide(t *testing.T, a, b fence.World, open func(*testing.T, fence.World) fence.WorldKeeper) {
	of := map[fence.World]fence.WorldKeeper{a: open(t, a), b: open(t, b)}
	for w, k := range of {
		require.Equal(t, w, enter(t, k, w))
	}
	for w, k := range of {
		require.Equal(t, w, enter(t, k, fence.World{}))
	}
}

// authorityWorld: an authority has one world, and its ID is known.
func authorityWorld(t *testing.T, a fence.Authority) {
	w, err := a.World(t.Context())
	require.NoError(t, err)
	require.False(t, w.ID.IsZero())
	again, err := a.World(t.Context())
	require.NoError(t, err)
	require.Equal(t, w, again)
	require.NoError(t, w.Validate())
}

// worldsApart: a store of another world on the same servers sees nothing of a tile, and changes nothing of it.
func worldsApart(s *scene) {
	if s.InWorld == nil {
		s.Skip("this back end is of one world")
	}
	s.found(1, 3)
	before := s.image()
	other := s.InWorld(s.T, "w"+fence.NewWorldID().String()[:maxUnique])
	o, err := other.Owner(s.Context(), s.tile)
	require.NoError(s, err)
	require.False(s, o.Present())
	_, err = other.Commit(s.Context(), s.install(1, fence.Position{}))
	require.NoError(s, err)
	require.Equal(s, before, s.image())
	o, err = other.Owner(s.Context(), s.tile)
	require.NoError(s, err)
	require.Equal(s, fence.Seq(1), o.Position.Seq)
}
