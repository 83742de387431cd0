package fence_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

type goldenEntry struct {
	Name, Tile, Position, Prev string
	Kind                       fence.Kind
	Tick                       fence.Tick
	At                         int64
	Payload, Private, Frame    string
}

// goldenEntries reads the entries of testdata/frames.json, which were encoded by another program.
func goldenEntries(t testing.TB) (all []goldenEntry, entries []fence.Entry) {
	t.Helper()
	text, err := os.ReadFile("testdata/frames.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &all))
	require.NotEmpty(t, all)
	for _, g := range all {
		e := fence.Entry{Kind: g.Kind, Tick: g.Tick, At: fence.FromMillis(g.At), Payload: unhex(t, g.Payload),
			Private: unhex(t, g.Private)}
		e.Tile, err = fence.ParseTileID(g.Tile)
		require.NoError(t, err)
		e.Position, err = fence.ParsePosition(g.Position)
		require.NoError(t, err)
		e.Prev, err = fence.ParsePosition(g.Prev)
		require.NoError(t, err)
		entries = append(entries, e)
	}
	return all, entries
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	return b
}

func TestFrameGolden(t *testing.T) {
	t.Parallel()
	all, entries := goldenEntries(t)
	for i, e := range entries {
		bare := e
		bare.Chain = 0
		got := fence.NewEntry(bare)
		require.Equal(t, all[i].Frame, hex.EncodeToString(got.Frame), all[i].Name)
		require.NoError(t, got.Verify())
		decoded, err := fence.DecodeEntry(got.Frame)
		require.NoError(t, err)
		require.Equal(t, got, decoded, all[i].Name)
		e.Frame = decoded.Frame
		require.Equal(t, e, decoded, all[i].Name)
	}
}

// TestCommitEntry: what a commit and a rebase append is what their fields say.
func TestCommitEntry(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_795_226_280_753).UTC()
	c := fence.Commit{Tile: 7, Epoch: 3, Contact: "a:1", Prev: fence.Position{Epoch: 2, Seq: 9, Chain: 5}, Tick: 4,
		At:      at.Add(999),
		Payload: []byte("events"), Private: []byte("outcomes")}
	e := c.Entry()
	require.Equal(t, c.Next(), e.Position)
	require.Equal(t, fence.Entry{Tile: 7, Kind: fence.KindBatch, Position: c.Next(), Prev: c.Prev, Tick: 4, At: at,
		Payload: c.Payload, Private: c.Private, Frame: e.Frame}, e)
	// how a batch is presented is not part of it: one that a failover lost is appended again as an install
	c.Install = true
	require.Equal(t, e, c.Entry())
	r := fence.Rebase{Tile: 7, Epoch: 4, Contact: "a:1", Seq: 100, Tick: 4, At: at, Blob: []byte("state")}
	m := r.Entry()
	require.Equal(t, r.Next(), m.Position)
	require.Equal(t, fence.Entry{Tile: 7, Kind: fence.KindRebase, Position: r.Next(), Tick: 4, At: at,
		Payload: m.Payload, Private: []byte(fence.Checksum(r.Blob)), Frame: m.Frame}, m)
	require.Empty(t, m.Payload)
}

// TestChainCoversEverything: nothing of an entry can change without its chain, except its own sequence.
func TestChainCoversEverything(t *testing.T) {
	t.Parallel()
	base := fence.Entry{Tile: 1, Kind: fence.KindBatch, Position: fence.Position{Epoch: 2, Seq: 5},
		Prev: fence.Position{Epoch: 1, Seq: 4, Chain: 9},
		Tick: 7, At: time.UnixMilli(8), Payload: []byte("p"), Private: []byte("q")}
	chains := map[fence.Chain]string{fence.NewEntry(base).Chain: "base"}
	for name, change := range map[string]func(*fence.Entry){
		"tile":          func(e *fence.Entry) { e.Tile++ },
		"kind":          func(e *fence.Entry) { e.Kind++ },
		"epoch":         func(e *fence.Entry) { e.Epoch++ },
		"prev epoch":    func(e *fence.Entry) { e.Prev.Epoch++ },
		"prev seq":      func(e *fence.Entry) { e.Prev.Seq++ },
		"prev chain":    func(e *fence.Entry) { e.Prev.Chain++ },
		"tick":          func(e *fence.Entry) { e.Tick++ },
		"time":          func(e *fence.Entry) { e.At = e.At.Add(time.Millisecond) },
		"no time":       func(e *fence.Entry) { e.At = time.Time{} },
		"payload":       func(e *fence.Entry) { e.Payload = []byte("P") },
		"no payload":    func(e *fence.Entry) { e.Payload = nil },
		"private":       func(e *fence.Entry) { e.Private = []byte("Q") },
		"no private":    func(e *fence.Entry) { e.Private = nil },
		"one part":      func(e *fence.Entry) { e.Payload, e.Private = []byte("pq"), nil },
		"parts swapped": func(e *fence.Entry) { e.Payload, e.Private = e.Private, e.Payload },
	} {
		e := base
		change(&e)
		c := fence.NewEntry(e).Chain
		require.Empty(t, chains[c], name)
		chains[c] = name
	}
	moved := base
	moved.Seq = 500
	require.Equal(t, "base", chains[fence.NewEntry(moved).Chain])
}

// TestWatched: the chain still covers what watchers are not sent.
func TestWatched(t *testing.T) {
	t.Parallel()
	_, entries := goldenEntries(t)
	for _, e := range entries {
		w := e.Watched(fence.AreaSet{})
		require.Empty(t, w.Private)
		require.NoError(t, w.Verify())
		require.Equal(t, w, w.Watched(fence.AreaSet{}))
		w.Hidden++
		require.ErrorIs(t, w.Verify(), fence.ErrCorrupt)
	}
}

// TestDecodeEntryRefuses cuts and bends the golden frames: an error, or an entry whose chain does not verify.
func TestDecodeEntryRefuses(t *testing.T) {
	t.Parallel()
	all, _ := goldenEntries(t)
	for _, g := range all {
		frame := unhex(t, g.Frame)
		whole, err := fence.DecodeEntry(frame)
		require.NoError(t, err)
		for n := range frame {
			if e, err := fence.DecodeEntry(frame[:n]); err == nil {
				require.ErrorIs(t, e.Verify(), fence.ErrCorrupt, "%s, cut at %d", g.Name, n)
			}
			bent := append([]byte(nil), frame...)
			bent[n] ^= 1
			e, err := fence.DecodeEntry(bent)
			if err == nil && e.Verify() == nil {
				// A rebase's sequence is not part of its chain: a reader compares it with where it found the entry.
				require.Equal(t, fence.KindRebase, e.Kind, "%s, bent at %d", g.Name, n)
				require.NotEqual(t, whole.Position.Seq, e.Position.Seq)
			}
		}
	}
	good := unhex(t, all[1].Frame)
	for what, bend := range map[string]func([]byte) []byte{
		"a later version":  func(f []byte) []byte { f[0] = 2; return f },
		"no kind":          func(f []byte) []byte { f[1] = 0; return f },
		"an unknown kind":  func(f []byte) []byte { f[1] = 3; return f },
		"tile zero":        func(f []byte) []byte { clear(f[2:10]); return f },
		"epoch zero":       func(f []byte) []byte { f[26] = 0; return f },
		"a long number":    func(f []byte) []byte { return append(append(f[:26:26], 0x81, 0x00), f[27:]...) },
		"a skipped number": func(f []byte) []byte { f[27]++; return f },
		"a number too high": func(f []byte) []byte {
			return append(append(f[:26:26], 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10), f[27:]...)
		},
		"too long":       func(f []byte) []byte { return append(f, make([]byte, fence.MaxFrame)...) },
		"a rebase after": func(f []byte) []byte { f[1] = 2; return f },
	} {
		_, err := fence.DecodeEntry(bend(append([]byte(nil), good...)))
		var format *fence.FormatError
		require.ErrorAs(t, err, &format, what)
		require.NotEmpty(t, format.Detail)
	}
}

// FuzzDecodeEntry: what can be decoded has one encoding.
func FuzzDecodeEntry(f *testing.F) {
	all, _ := goldenEntries(f)
	for _, g := range all {
		f.Add(unhex(f, g.Frame))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		e, err := fence.DecodeEntry(frame)
		if err != nil || e.Verify() != nil {
			return
		}
		require.Equal(t, frame, fence.NewEntry(e).Frame)
	})
}
