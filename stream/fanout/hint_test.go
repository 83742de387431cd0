package fanout_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

type octets []byte

func (o *octets) UnmarshalText(text []byte) (err error) {
	*o, err = hex.DecodeString(string(text))
	return err
}

// golden is the file of encodings, made by another program.
type golden struct {
	Groups []struct {
		Tile  string
		Group int
	}
	Messages []struct {
		Name, Channel string
		Group         int
		Tiles         []string
		Bytes         octets
	}
}

func readGolden(t testing.TB) (g golden) {
	t.Helper()
	text, err := os.ReadFile("testdata/hints.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &g))
	require.NotEmpty(t, g.Groups)
	require.NotEmpty(t, g.Messages)
	return g
}

func parseTile(t testing.TB, s string) fence.TileID {
	t.Helper()
	id, err := fence.ParseTileID(s)
	require.NoError(t, err)
	return id
}

func TestHintGolden(t *testing.T) {
	t.Parallel()
	g := readGolden(t)
	for _, e := range g.Groups {
		require.Equal(t, e.Group, fanout.HintGroupOf(parseTile(t, e.Tile)), e.Tile)
	}
	for _, m := range g.Messages {
		require.Equal(t, m.Channel, fanout.HintChannel(m.Group), m.Name)
		var tiles []fence.TileID
		for _, s := range m.Tiles {
			tiles = append(tiles, parseTile(t, s))
		}
		require.Equal(t, "before"+string(m.Bytes), string(fanout.AppendHints([]byte("before"), tiles)), m.Name)
		decoded, err := fanout.DecodeHints(m.Group, m.Bytes)
		require.NoError(t, err, m.Name)
		require.Equal(t, tiles, decoded, m.Name)
	}
}

func TestDecodeHintsRefuses(t *testing.T) {
	t.Parallel()
	refused := func(group int, p []byte, why string) {
		t.Helper()
		tiles, err := fanout.DecodeHints(group, p)
		var format *fence.FormatError
		require.ErrorAs(t, err, &format, why)
		require.Nil(t, tiles, why)
	}
	for _, m := range readGolden(t).Messages {
		for n := range m.Bytes {
			refused(m.Group, m.Bytes[:n], "cut short")
		}
		refused(m.Group, append(m.Bytes[:len(m.Bytes):len(m.Bytes)], 0), "too long")
		refused((m.Group+1)%fanout.HintGroups, m.Bytes, "another group")
		refused(m.Group, append([]byte{2}, m.Bytes[1:]...), "another version")
	}
	refused(0, fanout.AppendHints(nil, nil), "no tiles")
	refused(0, fanout.AppendHints(nil, []fence.TileID{0}), "tile zero, which hashes to group 0")
	many := make([]fence.TileID, fanout.MaxHints+1)
	for i := range many {
		many[i] = 1
	}
	refused(fanout.HintGroupOf(1), fanout.AppendHints(nil, many), "too many tiles")
	most, err := fanout.DecodeHints(fanout.HintGroupOf(1), fanout.AppendHints(nil, many[1:]))
	require.NoError(t, err)
	require.Len(t, most, fanout.MaxHints)
}

// FuzzDecodeHints: what is decoded encodes to the same bytes, and takes no more memory than they do.
func FuzzDecodeHints(f *testing.F) {
	for _, m := range readGolden(f).Messages {
		f.Add(m.Group, []byte(m.Bytes))
	}
	f.Fuzz(func(t *testing.T, group int, p []byte) {
		tiles, err := fanout.DecodeHints(group, p)
		if err != nil {
			require.Nil(t, tiles)
			return
		}
		require.LessOrEqual(t, 8*cap(tiles), len(p))
		require.Equal(t, p, fanout.AppendHints(nil, tiles))
		for _, tile := range tiles {
			require.Equal(t, group, fanout.HintGroupOf(tile))
		}
	})
}

// TestHintGroupsAreEven: neighbouring tiles, whose H3 indexes differ in a few digits in the middle, spread
// over the groups.
func TestHintGroupsAreEven(t *testing.T) {
	t.Parallel()
	for _, resolution := range []uint{3, 5, 7, 9} {
		unused := 3 * (15 - resolution) // bits of the digits below, all ones
		digits := uint(4)
		if resolution == 3 {
			digits = 3
		}
		const baseCell = 20
		n := 1
		for range digits {
			n *= 7
		}
		counts := make([]int, fanout.HintGroups)
		for i := range n {
			index := uint64(1)<<59 | uint64(resolution)<<52 | baseCell<<45 | 1<<unused - 1
			for d, rest := uint(0), i; d < digits; d, rest = d+1, rest/7 {
				index |= uint64(rest%7) << (unused + 3*d)
			}
			counts[fanout.HintGroupOf(fence.TileID(index))]++
		}
		for g, c := range counts {
			require.InDelta(t, n/fanout.HintGroups, c, float64(n/fanout.HintGroups)/2+4,
				"resolution %d, group %d of %d tiles", resolution, g, n)
		}
	}
}
