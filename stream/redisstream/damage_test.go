package redisstream_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

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

// writes are those that write.
func (v *victim) writes() map[string]error {
	all := map[string]error{"commit": v.commit(), "save": v.save(), "mark": v.mark()}
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
		"stream":   "read last recover stat commit trim",
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
