package gossip_test

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"math/bits"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/gossip"
)

var update = flag.Bool("update", false, "write testdata/messages.json anew")

const goldenFile = "testdata/messages.json"

// golden is a message and what it says. The Hex of those that are refused is written by hand.
type golden struct {
	Name    string
	Entries []route.Entry `json:",omitempty"`
	Leaving string        `json:",omitempty"`
	Refused string        `json:",omitempty"` // a part of the error
	Hex     string
}

func readGolden(t testing.TB) []golden {
	t.Helper()
	text, err := os.ReadFile(goldenFile)
	require.NoError(t, err)
	var all []golden
	require.NoError(t, json.Unmarshal(text, &all))
	require.NotEmpty(t, all)
	return all
}

const noLimit = 1 << 20

func (g *golden) encode() []byte {
	if g.Leaving != "" {
		return gossip.EncodeFarewell(g.Leaving)
	}
	b, _ := gossip.EncodeEntries(g.Entries, noLimit)
	return b
}

// TestGolden: the format is what it was when the file was written.
func TestGolden(t *testing.T) {
	all := readGolden(t)
	for i := range all {
		g := &all[i]
		if *update && g.Refused == "" {
			g.Hex = hex.EncodeToString(g.encode())
		}
		b, err := hex.DecodeString(strings.ReplaceAll(g.Hex, " ", ""))
		require.NoError(t, err)
		entries, leaving, err := gossip.Decode(b)
		if g.Refused != "" {
			require.ErrorIs(t, err, gossip.ErrMalformed, g.Name)
			require.ErrorContains(t, err, g.Refused, g.Name)
			continue
		}
		require.NoError(t, err, g.Name)
		require.Equal(t, g.Entries, entries, g.Name)
		require.Equal(t, g.Leaving, leaving, g.Name)
		require.Equal(t, b, g.encode(), g.Name)
	}
	if *update {
		text, err := json.MarshalIndent(all, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(goldenFile, append(text, '\n'), 0o600))
	}
}

// someMap draws a map: many tiles of one kind, or any.
func someMap(t *rapid.T) []route.Entry {
	contact := rapid.SampledFrom([]string{"", "a:1", "10.0.0.7:7000", "ünïcode", strings.Repeat("x", fence.MaxContact)})
	low := rapid.IntRange(0, 63).Draw(t, "low bits in common")
	entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) route.Entry {
		tile := rapid.Uint64Min(1).Draw(t, "tile")<<low | 1<<low>>1
		epoch := rapid.Uint64Range(1, 1<<rapid.IntRange(1, 53).Draw(t, "bits")-1).Draw(t, "epoch")
		return route.Entry{Tile: fence.TileID(max(tile, 1)), Epoch: fence.Epoch(epoch),
			Contact: contact.Draw(t, "contact")}
	}), 0, 60).Draw(t, "entries")
	table := new(route.Table)
	table.Learn(entries...)
	return table.Snapshot()
}

// TestRoundTrip: what is written is read, and nothing is written past the limit.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		entries := someMap(t)
		limit := rapid.IntRange(30, 3000).Draw(t, "limit")
		whole, written := gossip.EncodeEntries(entries, noLimit)
		require.Equal(t, len(entries), written)
		part, written := gossip.EncodeEntries(entries, limit)
		require.LessOrEqual(t, len(part), limit)
		if written == len(entries) {
			require.Equal(t, whole, part)
		} else {
			more, _ := gossip.EncodeEntries(entries[:written+1], noLimit)
			// a better shift takes a little less
			require.Greater(t, len(more)+fence.MaxContact, limit, "there was room")
		}
		for msg, want := range map[string][]route.Entry{string(whole): entries, string(part): entries[:written]} {
			got, leaving, err := gossip.Decode([]byte(msg))
			require.NoError(t, err)
			require.Empty(t, leaving)
			require.Equal(t, len(want), len(got))
			require.True(t, slices.Equal(want, got))
		}
	})
}

// TestNoDamageIsBelieved: every single flipped bit, and every missing end, is noticed.
func TestNoDamageIsBelieved(t *testing.T) {
	t.Parallel()
	for _, g := range readGolden(t) {
		if g.Refused != "" {
			continue
		}
		msg := g.encode()
		for i := range len(msg) * 8 {
			damaged := slices.Clone(msg)
			damaged[i/8] ^= 1 << (i % 8)
			_, _, err := gossip.Decode(damaged)
			require.ErrorIs(t, err, gossip.ErrMalformed, "%s, bit %d", g.Name, i)
		}
		for n := range msg {
			_, _, err := gossip.Decode(msg[:n])
			require.ErrorIs(t, err, gossip.ErrMalformed)
		}
		_, _, err := gossip.Decode(append(msg, 0))
		require.ErrorIs(t, err, gossip.ErrMalformed)
	}
}

// TestTheMapIsCompact: neighbouring tiles of one resolution, a few owners.
func TestTheMapIsCompact(t *testing.T) {
	t.Parallel()
	entries := galaxy(10_000)
	msg, written := gossip.EncodeEntries(entries, noLimit)
	require.Equal(t, len(entries), written)
	t.Logf("%d bytes, %.1f an entry", len(msg), float64(len(msg))/float64(written))
	require.Less(t, len(msg), 6*written)
}

// galaxy is a map of n tiles, owned by 40 hosts.
func galaxy(n int) []route.Entry {
	entries := make([]route.Entry, n)
	for i := range entries {
		// H3, resolution 5: base cell and five digits of three bits, 30 bits of ones.
		cell := uint64(i) * 19
		digits := uint64(0)
		for d := range 5 {
			digits |= cell % 7 << (3 * d)
			cell /= 7
		}
		contact := "10.0." + string('0'+rune(i%4)) + "." + string('0'+rune(bits.OnesCount(uint(i))%10)) + ":7000"
		entries[i] = route.Entry{Tile: fence.TileID(0x0850000000000000 | cell<<45 | digits<<30 | 1<<30 - 1),
			Epoch: fence.Epoch(1 + i%300), Contact: contact}
	}
	table := new(route.Table)
	table.Learn(entries...)
	return table.Snapshot()
}

// FuzzDecode: no bytes make it panic, and what it takes is valid, ascending, and says the same when it is
// written again.
func FuzzDecode(f *testing.F) {
	for _, g := range readGolden(f) {
		b, err := hex.DecodeString(strings.ReplaceAll(g.Hex, " ", ""))
		require.NoError(f, err)
		f.Add(b, true)
		f.Add(b[:len(b)-min(4, len(b))], false)
	}
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		if !sealed { // let it past the sum
			b = gossip.Seal(slices.Clone(b))
		}
		entries, leaving, err := gossip.Decode(b)
		if err != nil {
			require.ErrorIs(t, err, gossip.ErrMalformed)
			require.Empty(t, entries)
			require.Empty(t, leaving)
			return
		}
		var last fence.TileID
		for _, e := range entries {
			require.NoError(t, e.Validate())
			require.Greater(t, e.Tile, last)
			last = e.Tile
		}
		if leaving != "" {
			require.Equal(t, b, gossip.EncodeFarewell(leaving))
			return
		}
		again, written := gossip.EncodeEntries(entries, 2*len(b)+100)
		require.Equal(t, len(entries), written)
		require.LessOrEqual(t, len(again), len(b), "the encoder does not waste")
		same, _, err := gossip.Decode(again)
		require.NoError(t, err)
		require.True(t, slices.Equal(entries, same))
	})
}

// FuzzReceive: a node survives any packet and any map, counts what it refuses, and learns only what it
// does not refuse.
func FuzzReceive(f *testing.F) {
	for _, g := range readGolden(f) {
		b, err := hex.DecodeString(strings.ReplaceAll(g.Hex, " ", ""))
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		table := new(route.Table)
		node, err := gossip.New("a:1", table, nil)
		require.NoError(t, err)
		entries, leaving, err := gossip.Decode(b)
		node.Receive(b)
		node.Merge(b)
		assert.True(t, slices.Equal(entries, table.Snapshot()))
		switch {
		case err != nil:
			assert.Equal(t, uint64(2), node.Stats().Refused)
		case leaving != "":
			assert.Equal(t, uint64(1), node.Stats().Refused, "a farewell is no map")
		default:
			assert.Zero(t, node.Stats().Refused)
		}
	})
}
