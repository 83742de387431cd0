package redisfence_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
)

// kind is what an argument of a function may be.
type kind int

const (
	number   kind = iota + 1 // from 0
	positive                 // from 1
	flag
	chain
	contact
	position
	frame
	mode
	blob
	checksum
	consumer
	bound // 0, or from 1 MiB
	motion
)

// malformed are arguments that a client in another language might send for each kind. Each is refused.
var malformed = map[kind][]string{
	number: {"", "-1", "+1", "01", "00", "1.0", "1e3", "0x10", " 1", "1 ", "1\n", "\x001", "1\x00", "one", "nan", "inf",
		"9007199254740992",
		"9007199254740993", "10000000000000000000", strings.Repeat("9", 400)},
	motion: {"", "3", "-1", "true", "01", "02"},
	flag:   {"", "2", "-1", "true", "01", "00"},
	chain: {"", "0", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF", "0123456789abcdeg",
		"0123456789abcde\x00"},
	contact: {"", strings.Repeat("x", fence.MaxContact+1)},
	position: {"", "1", "1/1", "1/1/1", "1/1/0123456789abcdef/", "-1/1/0123456789abcdef", "1/01/0123456789abcdef",
		"1/1/0123456789ABCDEF", "1/9007199254740992/0123456789abcdef", "a/b/c"},
	frame:    {"", strings.Repeat("x", fence.MaxFrame+1)},
	mode:     {"", "Append", "appendix", "0", "1"},
	blob:     {strings.Repeat("x", fence.MaxSnapshot+1)},
	checksum: {"", "0000000000000000000000000000000000000000", "DA39A3EE5E6B4B0D3255BFEF95601890AFD80709"},
	consumer: {"", "group", "Bridge", "bridge.at", "bridge ", "trimmed", "relay", "relay:", "relay:a.at", "relay:a b",
		"relay:é", "relay:" + strings.Repeat("x", 65)},
}

func init() {
	malformed[bound] = append([]string{"1", "1048575"}, malformed[number]...)
	malformed[positive] = append([]string{"0"}, malformed[number]...)
}

// signature is a function, arguments that it would accept, and what kind each of them is.
type signature struct {
	name  string
	keys  func(fence.Keys) []string
	args  []any
	kinds []kind
}

func writers(k fence.Keys) []string { return []string{k.Owner, k.Stream, k.Snapshot} }

// signatures are calls that would all succeed on a tile with one entry under epoch 1.
func signatures(tile fence.TileID) []signature {
	founder := founding(tile)
	at := founder.Next()
	next := fence.Commit{Tile: tile, Epoch: 1, Contact: "a:1", Prev: at, Tick: 2, Payload: []byte("x")}
	rebase := fence.Rebase{Tile: tile, Epoch: 2, Contact: "b:1", Seq: 10, Tick: 2}
	empty := fence.Checksum(nil)
	return []signature{
		{"tilefence_commit_v1", writers,
			[]any{"1", "a:1", "append", at.String(), next.Next().String(), "2", next.Entry().Frame, "60000"},
			[]kind{positive, contact, mode, position, position, number, frame, number}},
		{"tilefence_commit_v1", writers,
			[]any{"2", "b:1", "install", at.String(), "2/2/0123456789abcdef", "2", "frame", "60000"},
			[]kind{positive, contact, mode, position, position, number, frame, positive}},
		{"tilefence_rebase_v1", writers,
			[]any{"b:1", rebase.Next().String(), "2", rebase.Entry().Frame, empty, "", "60000", "0"},
			[]kind{contact, position, number, frame, checksum, blob, positive, flag}},
		{"tilefence_snapshot_v1", writers,
			[]any{at.String(), "1", empty, ""},
			[]kind{position, number, checksum, blob}},
		{"tilefence_mark_v1", func(k fence.Keys) []string { return []string{k.Marks} },
			[]any{"relay:a-1_Z", "1", "0"}, []kind{consumer, number, motion}},
		{"tilefence_trim_v1", func(k fence.Keys) []string { return []string{k.Marks, k.Stream, k.Snapshot} },
			[]any{"1000", "1048576"}, []kind{positive, bound}},
	}
}

func founding(tile fence.TileID) fence.Commit {
	return fence.Commit{Tile: tile, Epoch: 1, Contact: "a:1", Tick: 1, Payload: []byte("founded"), Install: true}
}

// TestFunctionsRefuse calls the functions as any client may, with every argument malformed in every way
// and missing: nothing is written, and the answer says which argument it was.
func TestFunctionsRefuse(t *testing.T) {
	t.Parallel()
	store, client := newStore(t, nil)
	tile := newTile()
	_, err := store.Commit(t.Context(), founding(tile))
	require.NoError(t, err)
	before := dump(t, client, tile)
	for _, s := range signatures(tile) {
		keys := s.keys(fence.KeysOf(tile))
		for i, kind := range s.kinds {
			for _, bad := range malformed[kind] {
				args := slices.Clone(s.args)
				args[i] = bad
				reply, err := client.FCall(t.Context(), s.name, keys, args...).Slice()
				where := fmt.Sprintf("%s, argument %d %.40q: %v", s.name, i+1, bad, reply)
				require.NoError(t, err, where)
				require.Contains(t, []any{"invalid", "checksum", "stale", "forked", "replay", "behind"}, reply[0],
					where)
				if kind != checksum && kind != position {
					require.Equal(t, "invalid", reply[0], where)
				}
			}
			reply, err := client.FCall(t.Context(), s.name, keys, s.args[:i]...).Slice()
			require.NoError(t, err, "%s with %d arguments", s.name, i)
			require.Contains(t, []any{"invalid", "checksum"}, reply[0], "%s with %d arguments", s.name, i)
		}
	}
	require.Equal(t, before, dump(t, client, tile))
	// As they stand, each of them is accepted.
	for i := range signatures(tile) {
		tile := newTile()
		_, err := store.Commit(t.Context(), founding(tile))
		require.NoError(t, err)
		s := signatures(tile)[i]
		reply, err := client.FCall(t.Context(), s.name, s.keys(fence.KeysOf(tile)), s.args...).Result()
		require.NoError(t, err)
		if list, ok := reply.([]any); ok {
			reply = list[0]
		}
		require.Equal(t, "ok", reply, s.name)
	}
}

// dump is everything a tile has.
func dump(t *testing.T, client *redis.ClusterClient, tile fence.TileID) map[string]any {
	t.Helper()
	k := fence.KeysOf(tile)
	all := map[string]any{}
	for _, key := range []string{k.Owner, k.Stream, k.Snapshot, k.Marks, k.Dead} {
		what, err := client.Type(t.Context(), key).Result()
		require.NoError(t, err)
		switch what {
		case "none":
		case "hash": // DUMP would give its fields in any order
			all[key], err = client.HGetAll(t.Context(), key).Result()
		default:
			all[key], err = client.Dump(t.Context(), key).Result()
		}
		require.NoError(t, err)
	}
	return all
}

// TestFunctionsConsistency: arguments that are well formed, but do not fit each other, are refused too.
func TestFunctionsConsistency(t *testing.T) {
	t.Parallel()
	store, client := newStore(t, nil)
	tile := newTile()
	r, err := store.Commit(t.Context(), founding(tile))
	require.NoError(t, err)
	at := r.Position
	before := dump(t, client, tile)
	for what, args := range map[string][]any{
		"a batch that skips a sequence": {"1", "a:1", "append", at.String(), "1/3/0123456789abcdef", "2", "x",
			"60000"},
		"a batch that stays": {"1", "a:1", "append", at.String(), "1/1/0123456789abcdef", "2", "x",
			"60000"},
		"a batch of another epoch": {"1", "a:1", "append", at.String(), "2/2/0123456789abcdef", "2", "x",
			"60000"},
		"an install of another epoch": {"2", "b:1", "install", at.String(), "1/2/0123456789abcdef", "2", "x",
			"60000"},
		"an install that skips a sequence": {"2", "b:1", "install", at.String(), "2/3/0123456789abcdef", "2", "x",
			"60000"},
		"a refresh that moves on": {"1", "a:1", "refresh", at.String(), "1/2/" + at.Chain.String(), "2", "",
			"60000"},
		"a refresh to another chain": {"1", "a:1", "refresh", at.String(), "1/1/0123456789abcdef", "2", "",
			"60000"},
		"a refresh with a frame": {"1", "a:1", "refresh", at.String(), at.String(), "2", "x", "60000"},
		"a batch without a frame": {"1", "a:1", "append", at.String(), "1/2/0123456789abcdef", "2", "",
			"60000"},
	} {
		reply, err := client.FCall(t.Context(), "tilefence_commit_v1", writers(fence.KeysOf(tile)), args...).Slice()
		require.NoError(t, err)
		require.Equal(t, "invalid", reply[0], what)
	}
	require.Equal(t, before, dump(t, client, tile))
}

// TestMarksACall: one call moves sixteen watermarks at most, whole ones, and those of one consumer act in turn.
func TestMarksACall(t *testing.T) {
	t.Parallel()
	_, client := newStore(t, nil)
	tile := newTile()
	mark := func(args ...any) []any {
		reply, err := client.FCall(t.Context(), "tilefence_mark_v1", []string{fence.KeysOf(tile).Marks},
			args...).Slice()
		require.NoError(t, err)
		return reply
	}
	var many []any
	for i := range 17 {
		many = append(many, fmt.Sprint("relay:r", i), "1", "0")
	}
	require.Equal(t, []any{"invalid", "watermarks"}, mark())
	require.Equal(t, []any{"invalid", "watermarks"}, mark(many...))
	require.Equal(t, "invalid", mark(many[:7]...)[0])
	require.Empty(t, dump(t, client, tile))
	require.Len(t, mark(many[:48]...), 18)
	mark("bridge", "20", "0", "bridge", "10", "0")
	seq := func() string { return client.HGet(t.Context(), fence.KeysOf(tile).Marks, "bridge").Val() }
	require.Equal(t, "20", seq())
	mark("bridge", "10", "1", "bridge", "5", "0")
	require.Equal(t, "10", seq())
}

// TestNumbersThatCannotBeStored: no call writes a sequence that no reader takes, whatever stands in the tile's keys.
func TestNumbersThatCannotBeStored(t *testing.T) {
	t.Parallel()
	_, client := newStore(t, nil)
	k := fence.KeysOf(newTile())
	const head = "1/9007199254740991/0123456789abcdef"
	require.NoError(t, client.HSet(t.Context(), k.Owner, "head", head, "tick", "1", "contact", "a:1").Err())
	defer client.Del(t.Context(), k.Owner)
	for _, mode := range []string{"append", "install"} {
		reply, err := client.FCall(t.Context(), "tilefence_commit_v1", writers(k), "1", "a:1", mode, head,
			"1/9007199254740992/0123456789abcdef", "2", "x", "60000").Slice()
		require.NoError(t, err, mode)
		require.Equal(t, "invalid", reply[0], mode)
	}
	require.Equal(t, head, client.HGet(t.Context(), k.Owner, "head").Val())
	reply, err := client.FCall(t.Context(), "tilefence_mark_v1", []string{k.Marks}, "bridge", "4503599627370497",
		"0").Slice()
	require.NoError(t, err)
	require.Equal(t, []any{"invalid", "seq"}, reply)
}

// TestTheRevisionRises: a server that has this revision with another source refuses to be loaded. A change of the
// sources raises Revision, and then the line in the file.
func TestTheRevisionRises(t *testing.T) {
	t.Parallel()
	known, err := os.ReadFile("testdata/revision.txt")
	require.NoError(t, err)
	head, _, _ := strings.Cut(strings.TrimPrefix(redisfence.Library(), "#!lua name=tilefence_v1\n"), "\n")
	require.Equal(t, strings.TrimSpace(string(known)), head)
}

// TestAnEarlierReleaseMarksAndTrims: it reports no epoch, and gets none, beside one that does, while an upgrade rolls.
func TestAnEarlierReleaseMarksAndTrims(t *testing.T) {
	t.Parallel()
	_, client := newStore(t, nil)
	k := fence.KeysOf(newTile())
	call := func(function string, keys []string, args ...any) []any {
		reply, err := client.FCall(t.Context(), function, keys, args...).Slice()
		require.NoError(t, err)
		require.Equal(t, "ok", reply[0])
		return reply
	}
	keys := []string{k.Marks, k.Stream, k.Snapshot}
	call("tilefence_mark_v1", keys[:1], "bridge", "1", "0", "7")
	call("tilefence_mark_v1", keys[:1], "bridge", "2", "0")
	call("tilefence_mark_v1", keys[:1], "bridge", "2", "0", "7", "3/2/00000000000000ff")
	for _, last := range []string{"x", "1/2", "1/2/ff", "-1/2/00000000000000ff"} {
		reply, err := client.FCall(t.Context(), "tilefence_mark_v1", keys[:1], "bridge", "3", "0", "7", last).Slice()
		require.NoError(t, err)
		require.Equal(t, []any{"invalid", "last"}, reply)
	}
	for _, shown := range []string{"", "x", "-1", "1.5", "9007199254740992"} {
		reply, err := client.FCall(t.Context(), "tilefence_mark_v1", keys[:1], "bridge", "3", "0", shown).Slice()
		require.NoError(t, err)
		require.Equal(t, []any{"invalid", "shown"}, reply)
	}
	require.Len(t, call("tilefence_trim_v1", keys, "60000", "0"), 8)
	reply := call("tilefence_trim_v1", keys, "60000", "0", "shown")
	require.Len(t, reply, 9)
	require.Equal(t, "7", reply[8])
}

// TestAnEarlierReleaseRebases: it says no more of what it replaces than whether that is nothing.
func TestAnEarlierReleaseRebases(t *testing.T) {
	t.Parallel()
	_, client := newStore(t, nil)
	k := fence.KeysOf(newTile())
	rebase := func(epoch, replaces string) any {
		reply, err := client.FCall(t.Context(), "tilefence_rebase_v1",
			[]string{k.Owner, k.Stream, k.Snapshot, k.Marks, k.Dead}, "a:1", epoch+"/"+epoch+"/00000000000000ff", "0",
			"frame", "da39a3ee5e6b4b0d3255bfef95601890afd80709", "", "60000", replaces).Result()
		require.NoError(t, err)
		if all, ok := reply.([]any); ok {
			return all[0]
		}
		return reply
	}
	require.Equal(t, "ok", rebase("1", "1"))
	require.Equal(t, "behind", rebase("2", "1"))
	require.Equal(t, "ok", rebase("2", "0"))
	for _, replaces := range []string{"", "2", "x", "1/2", "2/2/ff"} {
		require.Equal(t, "invalid", rebase("3", replaces))
	}
	require.Equal(t, "behind", rebase("3", "1/1/00000000000000ff"))
	require.Equal(t, "ok", rebase("3", "2/2/00000000000000ff"))
}

// TestForeignKeys: keys that hold something else are left alone, and the error names them.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	store, client := newStore(t, nil)
	for _, pick := range []func(fence.Keys) string{
		func(k fence.Keys) string { return k.Owner }, func(k fence.Keys) string { return k.Stream },
		func(k fence.Keys) string { return k.Snapshot },
	} {
		tile := newTile()
		key := pick(fence.KeysOf(tile))
		require.NoError(t, client.Set(t.Context(), key, "something else", 0).Err())
		before := dump(t, client, tile)
		_, err := store.Commit(t.Context(), founding(tile))
		require.Error(t, err)
		_, err = store.Rebase(t.Context(), fence.Rebase{Tile: tile, Epoch: 1, Contact: "a:1", Seq: 1})
		require.Error(t, err)
		require.NotErrorIs(t, err, fence.ErrNotApplied)
		require.Equal(t, before, dump(t, client, tile))
	}
}

// TestOwnerHash: what is an owner hash, what is none, and what cannot be read.
func TestOwnerHash(t *testing.T) {
	t.Parallel()
	store, client := newStore(t, nil)
	for _, test := range []struct {
		hash    []any
		corrupt bool
	}{
		{[]any{"head", "1/1/0123456789abcdef", "contact", "a:1", "tick", "1"}, false},
		{[]any{"head", "1/1/0123456789abcdef", "contact", "a:1", "tick", "1", "later", "release"}, false},
		{[]any{"later", "release"}, false},
		{[]any{"head", "0/1/0123456789abcdef", "contact", "a:1", "tick", "1"}, true},
		{[]any{"head", "01/1/0123456789abcdef", "contact", "a:1", "tick", "1"}, true},
		{[]any{"head", "1/1/0123456789abcdeF", "contact", "a:1", "tick", "1"}, true},
		{[]any{"head", "1/1", "contact", "a:1", "tick", "1"}, true},
		{[]any{"head", "1/1/0123456789abcdef", "contact", "", "tick", "1"}, true},
		{[]any{"head", "1/1/0123456789abcdef", "contact", strings.Repeat("x", fence.MaxContact+1), "tick", "1"}, true},
		{[]any{"head", "1/1/0123456789abcdef", "contact", "a:1"}, true},
		{[]any{"head", "1/1/0123456789abcdef", "contact", "a:1", "tick", "x"}, true},
		{[]any{"head", "1/1/0123456789abcdef", "tick", "1"}, true},
		{[]any{"contact", "a:1", "tick", "1"}, true},
		{[]any{"tick", "1"}, true},
		{[]any{"head", "1/1/0123456789abcdef"}, true},
	} {
		tile := newTile()
		require.NoError(t, client.HSet(t.Context(), fence.KeysOf(tile).Owner, test.hash...).Err())
		before := dump(t, client, tile)
		c := founding(tile)
		c.Epoch = 9
		_, readErr := store.Owner(t.Context(), tile)
		_, writeErr := store.Commit(t.Context(), c)
		require.Equal(t, test.corrupt, errors.Is(readErr, fence.ErrCorrupt), "%v: %v", test.hash, readErr)
		require.Equal(t, test.corrupt, errors.Is(writeErr, fence.ErrCorrupt), "%v: %v", test.hash, writeErr)
		if test.corrupt {
			require.Equal(t, before, dump(t, client, tile))
		}
	}
}

// TestSnapshotOfHigherEpoch: an epoch that only the snapshot knows is known all the same.
func TestSnapshotOfHigherEpoch(t *testing.T) {
	t.Parallel()
	store, client := newStore(t, nil)
	tile := newTile()
	_, err := store.Commit(t.Context(), founding(tile))
	require.NoError(t, err)
	require.NoError(t, client.HSet(t.Context(), fence.KeysOf(tile).Snapshot, "epoch", 5, "seq", 1, "chain",
		"0123456789abcdef", "tick", 1).Err())
	for _, epoch := range []fence.Epoch{2, 5} {
		_, err = store.Rebase(t.Context(), fence.Rebase{Tile: tile, Epoch: epoch, Contact: "b:1", Seq: 100})
		require.ErrorIs(t, err, fence.ErrStale)
	}
	_, err = store.Rebase(t.Context(), fence.Rebase{Tile: tile, Epoch: 6, Contact: "b:1", Seq: 100})
	require.NoError(t, err)
}

// TestStreamPastOwner: a stream that does not end where the owner hash says was written by another program.
// The tile stops until it is rebased past it.
func TestStreamPastOwner(t *testing.T) {
	t.Parallel()
	store, client := newStore(t, nil)
	tile := newTile()
	r, err := store.Commit(t.Context(), founding(tile))
	require.NoError(t, err)
	require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: fence.KeysOf(tile).Stream, ID: "5-0",
		Values: []any{"who", "knows"}}).Err())
	before := dump(t, client, tile)
	_, err = store.Commit(t.Context(), fence.Commit{Tile: tile, Epoch: 1, Contact: "a:1", Prev: r.Position, Tick: 2,
		Payload: []byte("x")})
	require.ErrorIs(t, err, fence.ErrCorrupt)
	_, err = store.Rebase(t.Context(), fence.Rebase{Tile: tile, Epoch: 2, Contact: "b:1", Seq: 5})
	require.ErrorIs(t, err, fence.ErrCorrupt)
	require.Equal(t, before, dump(t, client, tile))
	_, err = store.Rebase(t.Context(), fence.Rebase{Tile: tile, Epoch: 2, Contact: "b:1", Seq: 1 + fence.RebaseJump})
	require.NoError(t, err)
}
