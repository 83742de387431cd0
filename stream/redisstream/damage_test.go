package redisstream_test

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
)

// victim is a tile with an owner, entries, a snapshot and a mark, which a program then writes to past the library.
type victim struct {
	hands
	tile  fence.TileID
	keys  fence.Keys
	at    fence.Position
	store *redisfence.Store
	log   *redisstream.Log
}

func newVictim(t *testing.T, h hands, store *redisfence.Store, log *redisstream.Log) *victim {
	v := &victim{hands: h, tile: fence.TileID(rand.Uint64()>>1 | 1), store: store, log: log}
	v.keys = fence.KeysOf(v.tile)
	r, err := store.Rebase(t.Context(), fence.Rebase{Tile: v.tile, Epoch: 1, Contact: "a:1", Seq: 1, Tick: 1,
		Blob: []byte("state")})
	require.NoError(t, err)
	v.at = r.Position
	require.NoError(t, v.commit())
	require.NoError(t, v.save())
	require.NoError(t, v.mark())
	return v
}

func (v *victim) commit() error {
	r, err := v.store.Commit(v.t.Context(), fence.Commit{Tile: v.tile, Epoch: 1, Contact: "a:1", Prev: v.at,
		Tick: fence.Tick(v.at.Seq), Payload: []byte("x")})
	if err == nil {
		v.at = r.Position
	}
	return err
}

func (v *victim) save() error {
	return v.store.SaveSnapshot(v.t.Context(), fence.SnapshotWrite{Tile: v.tile, Position: v.at, Tick: 1,
		Blob: []byte("state")})
}

func (v *victim) mark() error {
	return stream.MarkOne(v.t.Context(), v.log, stream.MarkWrite{Tile: v.tile, Consumer: stream.Checkpointed,
		Seq: 1})
}

// reads are the calls that others than the owner make, by name.
func (v *victim) reads() map[string]error {
	ctx := v.t.Context()
	chunks, err := v.log.Read(ctx, []stream.Cursor{{Tile: v.tile}})
	if err == nil {
		err = chunks[0].Err
	}
	all := map[string]error{"read": err}
	_, all["owner"] = v.store.Owner(ctx, v.tile)
	_, _, all["snapshot"] = v.log.Snapshot(ctx, v.tile)
	_, all["last"] = v.log.Last(ctx, v.tile)
	_, all["recover"] = stream.Recover(ctx, v.log, v.tile)
	marks, err := v.log.Marks(ctx, []fence.TileID{v.tile})
	if err == nil {
		err = marks[0].Err
	}
	all["marks"] = err
	stats, err := v.log.Stat(ctx, []fence.TileID{v.tile})
	if err == nil {
		err = stats[0].Err
	}
	all["stat"] = err
	return all
}

// writes are those that write, and Confirm, which owners call too.
func (v *victim) writes() map[string]error {
	all := map[string]error{"confirm": v.store.Confirm(v.t.Context(), v.tile, v.at), "commit": v.commit(),
		"save": v.save(), "mark": v.mark()}
	_, all["trim"] = v.log.Trim(v.t.Context(), stream.TrimRequest{Tile: v.tile, Lease: time.Minute})
	_, all["letters"] = v.log.DeadLetters(v.t.Context(), v.tile)
	all["letter"] = v.log.DeadLetter(v.t.Context(), stream.Poison{Tile: v.tile, Seq: 1})
	return all
}

// TestAKeyOfAnotherTypeIsDamage: it is a *fence.CorruptError that names key, type and remedy, and not a store that is
// away. Other tiles of the same call are read.
func TestAKeyOfAnotherTypeIsDamage(t *testing.T) {
	store, log, client := open(t)
	healthy := newVictim(t, hands{t, client}, store, log)
	for name, suffer := range map[string]string{
		"owner":    "owner read last recover stat commit save",
		"stream":   "read last recover stat commit trim confirm",
		"snapshot": "snapshot last recover stat save trim",
		"marks":    "marks stat mark trim",
		"dead":     "stat letters letter",
	} {
		v := newVictim(t, hands{t, client}, store, log)
		key := "{tile:" + v.tile.String() + "}:" + name
		v.do("del", key)
		v.do("lpush", key, "foreign")
		failed := 0
		for _, calls := range []map[string]error{v.reads(), v.writes()} {
			for call, err := range calls {
				if err == nil {
					continue
				}
				failed++
				assert.Contains(t, suffer, call, name)
				var damage *fence.CorruptError
				require.ErrorAs(t, err, &damage, "%s: %s", name, call)
				assert.False(t, errors.Is(err, fence.ErrNotApplied) || errors.Is(err, fence.ErrUnknownOutcome), call)
				assert.Equal(t, v.tile, damage.Tile)
				assert.Contains(t, err.Error(), "tilectl repair", call)
				if name == "stream" && call == "commit" {
					continue // XADD's own, of what was to be appended
				}
				assert.Contains(t, err.Error(), "key "+key, call)
				assert.Contains(t, err.Error(), "it is a list", call)
			}
		}
		assert.GreaterOrEqual(t, failed, 3, name)
		tiles := []fence.TileID{v.tile, healthy.tile}
		chunks, err := log.Read(t.Context(), []stream.Cursor{{Tile: tiles[0]}, {Tile: tiles[1]}})
		require.NoError(t, err)
		assert.NoError(t, chunks[1].Err)
		assert.NotEmpty(t, chunks[1].Entries)
		marks, err := log.Marks(t.Context(), tiles)
		require.NoError(t, err)
		assert.NoError(t, marks[1].Err)
	}
}

// hostile are values that no owner, consumer or trim writes, or only into some fields.
var hostile = []string{"-1", "0", "17592186044417", "4503599627370497", "9007199254740991", "9223372036854775807",
	"18446744073709551615", "", "1e3", " 1", "0x1", "NaN", strings.Repeat("9", 1<<20)}

// TestHostileValues: whatever stands in a field of a tile's hashes, each call gives what can be believed or an error
// that says what is damaged, and no trim removes what the tile needs.
func TestHostileValues(t *testing.T) {
	store, log, client := open(t)
	v := newVictim(t, hands{t, client}, store, log)
	ctx := t.Context()
	chain := v.at.Chain.String()
	cases := map[string][]string{
		v.keys.Owner:    {"head", "head epoch", "head seq", "head chain", "tick", "contact"},
		v.keys.Snapshot: {"epoch", "seq", "chain", "tick", "contact", "sum", "at", "blob"},
		v.keys.Marks: {"trimmed", "shown", "checkpoint", "checkpoint.at", "checkpoint.silent", "bridge", "bridge.at",
			"bridge.last", "relay:a", "relay:a.at"},
	}
	for key, fields := range cases {
		sound := v.hash(key)
		for _, field := range fields {
			for _, value := range hostile {
				what := field + " " + value[:min(len(value), 20)]
				name := field
				switch field {
				case "head epoch":
					name, value = "head", value+"/2/"+chain
				case "head seq":
					name, value = "head", "1/"+value+"/"+chain
				case "head chain":
					name, value = "head", "1/2/"+value
				}
				v.do("hset", key, name, value)
				for call, err := range v.reads() {
					if err != nil && !errors.Is(err, stream.ErrGap) {
						require.ErrorIs(t, err, fence.ErrCorrupt, "%s: %s", what, call)
					}
				}
				v.believes(what)
				_, err := store.Commit(ctx, fence.Commit{Tile: v.tile, Epoch: 1, Contact: "a:1", Prev: v.at, Tick: 2})
				v.typed(err, what)
				v.typed(v.save(), what)
				v.typed(v.mark(), what)
				_, err = log.Trim(ctx, stream.TrimRequest{Tile: v.tile, Lease: time.Minute})
				require.NoError(t, err, what)
				require.NoError(t, v.mark(), "%s: it resyncs for ever", what)
				n, err := client.XLen(ctx, v.keys.Stream).Result()
				require.NoError(t, err)
				require.NotZero(t, n, what)
				v.do("del", key)
				for name, value := range sound {
					v.do("hset", key, name, value)
				}
			}
		}
	}
	for call, err := range v.reads() {
		require.NoError(t, err, call)
	}
}

// believes checks what readers take for true.
func (v *victim) believes(what string) {
	marks, err := v.log.Marks(v.t.Context(), []fence.TileID{v.tile})
	require.NoError(v.t, err)
	assert.LessOrEqual(v.t, marks[0].Trimmed, fence.FarSeq, what)
	for consumer, m := range marks[0].Marks {
		assert.LessOrEqual(v.t, m.Seq, fence.FarSeq, "%s: %s", what, consumer)
	}
}

// typed checks that a write that failed says why.
func (v *victim) typed(err error, what string) {
	var refused *fence.RefusedError
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, stream.ErrResync) {
		require.ErrorIs(v.t, err, fence.ErrCorrupt, what)
	}
}

// TestForeignEntries: an entry that no owner wrote is named, by those that cannot go on after it and by those that can.
func TestForeignEntries(t *testing.T) {
	store, log, client := open(t)
	for id, fields := range map[string][]any{
		"18446744073709551615-18446744073709551615": {"x", "y"},
		"18446744073709551615-0":                    {"f", "frame"},
		"9007199254740992-0":                        {"f", ""},
		"3-7":                                       {"f", "frame"},
		"3-0":                                       {"x", "y", "f2", "z"},
	} {
		v := newVictim(t, hands{t, client}, store, log)
		v.do(append([]any{"xadd", v.keys.Stream, id}, fields...)...)
		chunks, err := log.Read(t.Context(), []stream.Cursor{{Tile: v.tile, After: 1}})
		require.NoError(t, err)
		require.Len(t, chunks[0].Entries, 1)
		require.NotNil(t, chunks[0].Poison, id)
		_, err = stream.Recover(t.Context(), log, v.tile)
		v.dropOwner(v.tile)
		_, unowned := log.Last(t.Context(), v.tile)
		for _, err := range []error{err, unowned} {
			var damage *fence.CorruptError
			require.ErrorAs(t, err, &damage, id)
			sequence, _, _ := strings.Cut(id, "-")
			require.Equal(t, sequence, strconv.FormatUint(uint64(damage.At.Seq), 10))
			require.Contains(t, err.Error(), "tilectl repair")
		}
	}
}

// FuzzParseEntry: an entry of the stream is read, and is then what its checksums say, or it is poison that names its
// place.
func FuzzParseEntry(f *testing.F) {
	f.Add("7-0", "f", []byte("frame"))
	f.Add("18446744073709551615-1", "f", []byte{})
	f.Add("", "x", []byte(nil))
	f.Fuzz(func(t *testing.T, id, field string, frame []byte) {
		m := &redis.XMessage{ID: id, Values: map[string]any{field: string(frame)}}
		e, poison := redisstream.ParseEntry(testTile, m)
		if poison != nil {
			require.Equal(t, testTile, poison.Tile)
			require.NotEmpty(t, poison.Reason)
			require.Equal(t, fence.Entry{}, e)
			require.Equal(t, string(frame), poison.Fields[field])
			return
		}
		require.NoError(t, e.Verify())
		require.Equal(t, strconv.FormatUint(uint64(e.Seq), 10)+"-0", id)
		require.Equal(t, stream.FrameField, field)
	})
}

// FuzzParseSnapshot: a snapshot's hash is read, and its blob is then what its sum says, or it is corrupt.
func FuzzParseSnapshot(f *testing.F) {
	blob := []byte("state")
	chain := "0000000000000000"
	f.Add("3", "7", chain, "9", "1700000000000", "a:1", fence.Checksum(blob), blob)
	f.Add("-1", "9007199254740992", "x", "", "1e3", "\xff", "", []byte(nil))
	f.Fuzz(func(t *testing.T, epoch, seq, chain, tick, at, contact, sum string, blob []byte) {
		s, err := redisstream.ParseSnapshot(testTile, map[string]string{"epoch": epoch, "seq": seq, "chain": chain,
			"tick": tick, "at": at, "contact": contact, "sum": sum, "blob": string(blob)})
		if err != nil {
			require.ErrorIs(t, err, fence.ErrCorrupt)
			return
		}
		require.Equal(t, fence.Checksum(blob), s.Sum)
		require.LessOrEqual(t, uint64(s.Epoch), uint64(fence.MaxNumber))
		require.LessOrEqual(t, uint64(s.Seq), uint64(fence.MaxNumber))
	})
}

const testTile fence.TileID = 0x85283473fffffff
