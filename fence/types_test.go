package fence_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

func TestTileID(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1", "85283473fffffff", "8528340bfffffff", "ffffffffffffffff"} {
		tile, err := fence.ParseTileID(text)
		require.NoError(t, err)
		require.Equal(t, text, tile.String())
		var again fence.TileID
		marshalled, err := tile.MarshalText()
		require.NoError(t, err)
		require.NoError(t, again.UnmarshalText(marshalled))
		require.Equal(t, tile, again)
	}
	for _, text := range []string{"", "0", "00", "01", "85283473FFFFFFF", "0x85283473fffffff", "+1", "-1", " 1", "1 ",
		"1_0", "g",
		"10000000000000000", "85283473fffffff\n"} {
		_, err := fence.ParseTileID(text)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, text)
		tile := fence.TileID(7)
		require.Error(t, tile.UnmarshalText([]byte(text)))
		require.Equal(t, fence.TileID(7), tile, "a failed unmarshalling changes nothing")
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint64{"0": 0, "1": 1, "10": 10, "9007199254740991": fence.MaxNumber} {
		n, err := fence.ParseNumber(text)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	for _, text := range []string{"", "00", "01", "+1", "-1", "-0", "1.0", "1e3", "0x1", " 1", "1 ", "1_000",
		"9007199254740992", "18446744073709551616", "one"} {
		_, err := fence.ParseNumber(text)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, text)
	}
	// The highest number is the last one that a double tells from its neighbours.
	next := []uint64{fence.MaxNumber - 1, fence.MaxNumber, fence.MaxNumber + 1, fence.MaxNumber + 2}
	require.NotEqual(t, float64(next[0]), float64(next[1]))
	require.NotEqual(t, float64(next[1]), float64(next[2]))
	require.Equal(t, float64(next[2]), float64(next[3]))
}

func TestChainAndPositionText(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0/0/0000000000000000", fence.Position{}.String())
	require.True(t, fence.Position{}.IsZero())
	for _, p := range []fence.Position{{}, {Epoch: 3, Seq: 120, Chain: 0x9f86d081884c7d65},
		{Epoch: fence.MaxNumber, Seq: fence.MaxNumber, Chain: math.MaxUint64}} {
		parsed, err := fence.ParsePosition(p.String())
		require.NoError(t, err)
		require.Equal(t, p, parsed)
		chain, err := fence.ParseChain(p.Chain.String())
		require.NoError(t, err)
		require.Equal(t, p.Chain, chain)
	}
	require.Equal(t, "3/120/9f86d081884c7d65", fence.Position{Epoch: 3, Seq: 120, Chain: 0x9f86d081884c7d65}.String())
	for _, text := range []string{"", "/", "//", "1/2", "1/2/3", "1/2/0000000000000000/", "/1/2/0000000000000000",
		"01/2/0000000000000000",
		"1/2/000000000000000G", "1/2/ABCDEF0000000000", "9007199254740992/1/0000000000000000",
		"1/-2/0000000000000000"} {
		_, err := fence.ParsePosition(text)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, text)
	}
	for _, text := range []string{"", "0", "000000000000000", "00000000000000000", "000000000000000g",
		"ABCDEF0000000000", "0x00000000000000", "+000000000000000"} {
		_, err := fence.ParseChain(text)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, text)
	}
}

func TestKeysShareASlot(t *testing.T) {
	t.Parallel()
	k := fence.KeysOf(0x85283473fffffff)
	require.Equal(t, fence.Keys{Owner: "{tile:85283473fffffff}:owner", Stream: "{tile:85283473fffffff}:stream",
		Snapshot: "{tile:85283473fffffff}:snapshot", Marks: "{tile:85283473fffffff}:marks",
		Dead: "{tile:85283473fffffff}:dead"}, k)
	k = fence.World{Name: "a-world-whose-name-has-32-letters"[:32]}.Keys(0xffffffffffffffff)
	require.Equal(t, "a-world-whose-name-has-32-letter:{tile:ffffffffffffffff}:owner", k.Owner)
	require.Equal(t, "a-world-whose-name-has-32-letter:{tile:ffffffffffffffff}:dead", k.Dead)
}

func TestChecksum(t *testing.T) {
	t.Parallel()
	// SHA-1 of "abc", from its specification.
	require.Equal(t, "a9993e364706816aba3e25717850c26c9cd0d89d", fence.Checksum([]byte("abc")))
	s := fence.Snapshot{Blob: []byte("abc"), Sum: fence.Checksum([]byte("abc"))}
	require.NoError(t, s.Verify(3))
	s.Blob[0] ^= 1
	require.ErrorIs(t, s.Verify(3), fence.ErrCorrupt)
}

// TestRebaseChain: the sequence is not part of the chain, so that a rebase which has to jump further is
// recognised as the same.
func TestRebaseChain(t *testing.T) {
	t.Parallel()
	r := fence.Rebase{Tile: 1, Epoch: 2, Contact: "a:1", Seq: 10, Tick: 3, Blob: []byte("state")}
	further := r
	further.Seq = 20
	require.Equal(t, r.Next().Chain, further.Next().Chain)
	require.Equal(t, fence.Seq(20), further.Next().Seq)
	other := r
	other.Blob = []byte("another state")
	require.NotEqual(t, r.Next().Chain, other.Next().Chain)
}

// FuzzText: whatever a parser accepts is exactly what the formatter writes.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "0", "1", "01", "85283473fffffff", "9007199254740991", "0/0/0000000000000000",
		"3/120/9f86d081884c7d65", "1/2/3", "+1", "1_0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if tile, err := fence.ParseTileID(s); err == nil {
			require.Equal(t, s, tile.String())
			require.NotZero(t, tile)
		}
		if chain, err := fence.ParseChain(s); err == nil {
			require.Equal(t, s, chain.String())
		}
		if p, err := fence.ParsePosition(s); err == nil {
			require.Equal(t, s, p.String())
			require.LessOrEqual(t, uint64(p.Epoch), uint64(fence.MaxNumber))
			require.LessOrEqual(t, uint64(p.Seq), uint64(fence.MaxNumber))
		}
		if n, err := fence.ParseNumber(s); err == nil {
			require.Equal(t, s, strconv.FormatUint(n, 10))
			require.LessOrEqual(t, n, uint64(fence.MaxNumber))
		}
	})
}

func TestIsName(t *testing.T) {
	for _, s := range []string{"a", "ann lee", "géld 🂡", "e\u0301", "名前", "card:fireball", "10.0.0.7:7000", "'\"#<>&",
		"\u05d0\u05d1", "\u0627", strings.Repeat("x", 64)} {
		assert.True(t, fence.IsName(s, 64), "%q", s)
	}
	for name, s := range map[string]string{
		"empty": "", "too long": strings.Repeat("x", 65), "newline": "ann\nlevel=ERROR", "zero byte": "a\x00",
		"delete": "a\x7f", "escape sequence": "a\x1b[2J", "C1 control": "a\u0085", "not UTF-8": "a\xff",
		"surrogate": "a\xed\xa0\x80", "replacement": "a\ufffd", "right to left override": "ann\u202egnp.exe",
		"isolate": "a\u2066b", "left to right mark": "a\u200e", "zero width space": "a\u200bb", "joiner": "a\u200db",
		"byte order mark": "\ufeffa", "soft hyphen": "a\u00adb", "no-break space": "a\u00a0b",
		"line separator":  "a\u2028",
		"grapheme joiner": "a\u034fb", "Hangul filler": "\u3164", "variation selector": "a\ufe0f", "tag": "a\U000e0041",
		"Mongolian vowel separator": "a\u180eb", "blank Braille": "\u2800", "private use": "a\ue000",
	} {
		assert.False(t, fence.IsName(s, 64), name)
		if as := fence.AsName(s, 64); s != "" {
			assert.True(t, fence.IsName(as, 64), "%s: %q", name, as)
		}
	}
	assert.Empty(t, fence.AsName("", 4))
	assert.Equal(t, "a?b?", fence.AsName("a\x00b\xffc", 4))
	assert.Equal(t, "aö", fence.AsName("aöö", 4), "no character is cut in two")
}
