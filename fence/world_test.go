package fence_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

func TestWorldNames(t *testing.T) {
	for _, good := range []string{"", "a", "staging", "eu-1", strings.Repeat("a", 32)} {
		require.NoError(t, fence.World{Name: good}.Validate(), good)
	}
	for _, bad := range []string{"1", "-a", "A", "a b", "a:b", "a{b", "a}b", "a.b", "a*", "a_b", "\u00e9", "a\n",
		"a\x00", strings.Repeat("a", 33)} {
		require.ErrorIs(t, fence.World{Name: bad}.Validate(), fence.ErrInvalidArgument, "%q", bad)
	}
}

func TestWorldIDs(t *testing.T) {
	id := fence.NewWorldID()
	require.NotEqual(t, id, fence.NewWorldID())
	read, err := fence.ParseWorldID(id.String())
	require.NoError(t, err)
	require.Equal(t, id, read)
	for _, bad := range []string{"", "0", strings.Repeat("0", 32), strings.ToUpper(strings.Repeat("a", 32)),
		strings.Repeat("a", 31), strings.Repeat("a", 33), strings.Repeat("g", 32), strings.Repeat("a", 64)} {
		_, err := fence.ParseWorldID(bad)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, bad)
	}
}

// Keys of worlds never meet: one without a name has a brace where another has its name.
func TestWorldKeys(t *testing.T) {
	require.Equal(t, "{tilefence:world}", fence.World{}.Key(fence.WorldRecord))
	require.Equal(t, "staging:{tilefence:world}", fence.World{Name: "staging"}.Key(fence.WorldRecord))
	allocations := func(w fence.World) float64 {
		return testing.AllocsPerRun(100, func() { _ = w.Keys(0x85283473fffffff) })
	}
	require.Equal(t, allocations(fence.World{}), allocations(fence.World{Name: "staging"}))
}

func TestWorldError(t *testing.T) {
	one, two := fence.World{Name: "a", ID: fence.NewWorldID()}, fence.World{Name: "a", ID: fence.NewWorldID()}
	require.NoError(t, one.Compare("s", "r", one))
	require.NoError(t, one.Compare("s", "r", fence.World{Name: "a"}), "none recorded")
	require.NoError(t, fence.World{}.Compare("s", "r", one), "nothing known")
	err := one.Compare("Redis at 10.0.0.1:6379", "key a:{tilefence:world}", two)
	require.ErrorIs(t, err, fence.ErrWorld)
	for _, part := range []string{"10.0.0.1:6379", one.ID.String(), two.ID.String(), "a:{tilefence:world}",
		"servers of its"} {
		require.ErrorContains(t, err, part)
	}
	require.ErrorContains(t, one.Compare("s", "r", fence.World{Name: "b"}), "one name")
}
