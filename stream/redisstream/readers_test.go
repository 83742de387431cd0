package redisstream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/stream/streamtest"
)

// freeze dumps a tile's keys.
func (h hands) freeze(tile fence.TileID) (thaw func()) {
	k := fence.KeysOf(tile)
	keys := []string{k.Owner, k.Stream, k.Snapshot, k.Marks}
	dumps := make([]string, len(keys))
	for i, key := range keys {
		dump, err := h.client.Dump(context.WithoutCancel(h.t.Context()), key).Result()
		if !errors.Is(err, redis.Nil) {
			require.NoError(h.t, err)
		}
		dumps[i] = dump
	}
	return func() {
		for i, key := range keys {
			h.do("del", key)
			if dumps[i] != "" {
				h.do("restore", key, "0", dumps[i])
			}
		}
	}
}

func (h hands) forget(tile fence.TileID) {
	k := fence.KeysOf(tile)
	h.do("del", k.Owner, k.Stream, k.Snapshot, k.Marks, k.Dead)
}

// readers is a harness for streamtest.Readers.
func readers(t testing.TB, log *redisstream.Log, store *redisfence.Store,
	client redis.UniversalClient) streamtest.Harness {
	h := hands{t, client}
	return streamtest.Harness{Log: log, Store: store, DropOwner: h.dropOwner, AgeMarks: h.ageMarks, Group: h.group,
		AgeGroups: h.ageGroups,
		Freeze:    h.freeze, Forget: h.forget}
}

// twoPasses is a play in which a bounded trim takes two calls, the second of which evicts marks within a gap in the
// sequence and removes nothing.
const twoPasses = 72921884466104032

// TestReaders plays random readers, crashes, failovers and trims; see streamtest.Readers.
func TestReaders(t *testing.T) {
	t.Parallel()
	store, log, client := open(t)
	happened := map[string]int{}
	for _, seed := range append(seed.Many(t, 5), twoPasses) {
		h, err := streamtest.Readers(t.Context(), readers(t, log, store, client), seed, 250)
		require.NoError(t, err)
		for what, n := range h {
			happened[what] += n
		}
	}
	t.Logf("%v", happened)
	if os.Getenv("TILEFENCE_SEED") == "" && !testing.Short() {
		for _, what := range []string{"told", "expired", "gap", "failover", "group"} {
			require.NotZero(t, happened[what], what)
		}
	}
}

// renamed sends the calls of the functions to a library of another name.
type renamed struct {
	redis.Hook
	library string
}

func (r renamed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.rename(cmd)
		return next(ctx, cmd)
	}
}

func (r renamed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			r.rename(cmd)
		}
		return next(ctx, cmds)
	}
}

func (r renamed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r renamed) rename(cmd redis.Cmder) {
	args := cmd.Args()
	if args[0] != "fcall" {
		return
	}
	switch function := args[1].(type) {
	case string:
		args[1] = strings.Replace(function, "tilefence_", r.library+"_", 1)
	case *string: // a call of a writing function has its arguments in place
		*function = strings.Replace(*function, "tilefence_", r.library+"_", 1)
	}
}

// tooMany is a play in which a trim that evicts one mark too many does so; one play in ten does.
const tooMany = 13021127406593442418

// mutants are edits of the functions, each of a text that must be in them exactly once.
var mutants = []struct{ name, old, new string }{
	{"intact", "", ""},
	{"one entry too far", "'MINID', floor .. '-0')", "'MINID', (tonumber(floor) + 1) .. '-0')"},
	{"highest relay counts", "  lowest_first(live)\n", "  local top\n" +
		"  for _, m in ipairs(live) do if m.kind == 'relay' and (not top or m.seq > top.seq) then top = m end end\n" +
		"  for _, m in ipairs(live) do if m.kind == 'relay' then m.seq, m.text = top.seq, top.text end end\n" +
		"  lowest_first(live)\n"},
	{"no lease", "if not seq or not at or (noted and noted <= newest - lease / 2) then", "if not seq or not at then"},
	{"a step of the clock is age", "(noted and noted <= newest - lease / 2)", "at < newest - lease"},
	{"a note is enough", "(noted and noted <= newest - lease / 2)", "noted"},
	{"half a lease", "noted <= newest - lease / 2", "noted <= newest - lease / 6"},
	{"trims are forgotten", "redis.call('HSET', keys[1], 'trimmed', floor)", "redis.call('HDEL', keys[1], 'trimmed')"},
	{"pending mark ignored", "    if kind then", "    if kind and kind ~= 'pending' then"},
	{"groups ignored", "  local idle = there and pending_of(keys[2], trimmed, lease, live)", "  local idle = false"},
	{"evicts past the snapshot", "live[i] and live[i].seq < tonumber(snap)", "live[i]"},
	{"evicts once too often", "most > 0 and bytes > most and held", "most > 0 and bytes * 2 > most and held"},
	{"marks regress", "if old and args[i + 2] == '0' and (sequence(old) or 0) > s then seq = old end", ""},
	{"no reader learns of it", "s + 1 < trimmed and 'resync' or 'ok'", "'ok'"},
	{"learns too late", "s + 1 < trimmed and", "s + 2 < trimmed and"},
	{"learns too soon", "s + 1 < trimmed and", "s <= trimmed and"},
}

// TestReadersCatch edits the functions, a trim that goes one entry too far among others, and requires that the readers
// notice, and that they notice nothing when nothing is wrong.
func TestReadersCatch(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			store, _, client := open(t)
			_, log := edited(t, m.old, m.new)
			h := readers(t, log, store, client)
			if m.old == "" {
				_, err := streamtest.Readers(t.Context(), h, rand.Uint64(), 100)
				require.NoError(t, err)
				return
			}
			for n, play := 0, rand.Uint64(); n < 300; n, play = n+1, rand.Uint64() {
				if n == 0 && m.name == "evicts once too often" {
					play = tooMany
				}
				if _, err := streamtest.Readers(t.Context(), h, play, 250); err != nil {
					require.ErrorIs(t, err, streamtest.ErrBroken)
					t.Logf("play %d: %v", n+1, err)
					return
				}
			}
			t.Fatal("no play broke a promise")
		})
	}
}

// edited returns a log whose functions are the library's with one text replaced, which must be in it exactly once, and
// a store of the same kind.
func edited(t *testing.T, old, replacement string) (*redisfence.Store, *redisstream.Log) {
	t.Helper()
	text := redisfence.Library()
	if old != "" {
		require.Equal(t, 1, strings.Count(text, old), "the edit must have one place: %s", old)
		text = strings.Replace(text, old, replacement, 1)
	}
	name := fmt.Sprintf("edited_%x", rand.Uint64())
	text = strings.ReplaceAll(strings.Replace(text, redisfence.LibraryName, name, 1), "'tilefence_", "'"+name+"_")
	client := redis.NewClusterClient(redisfence.Options(stacktest.Redis(t)...))
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		return node.FunctionLoad(ctx, text).Err()
	}))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		assert.NoError(t, client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return node.FunctionDelete(ctx, name).Err()
		}))
	})
	client.AddHook(renamed{library: name})
	// Unpipelined: pipelined calls would pass by the hook.
	functions, err := redisfence.New(client, &redisfence.Config{TTL: 5 * time.Minute, Persistence: redisfence.Volatile,
		Unpipelined: true})
	require.NoError(t, err)
	return functions, redisstream.New(functions, client)
}

// TestExpireCatches edits what guards a tile against being collected, and requires that the loss is seen.
func TestExpireCatches(t *testing.T) {
	t.Parallel()
	for _, m := range []struct{ name, old, new, lost string }{
		{"intact", "", "", ""},
		{"an owner does not count", "if owner then return {'ok', -1} end", "", "owned"},
		{"any position is durable",
			"if last ~= args[1] or not s[2] or table.concat(s, '/') ~= last then return {'ok', -1} end", "", "ahead"},
		{"an install does not keep", "'contact', args[2])\n    keep(keys)", "'contact', args[2])", "woken"},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			_, _, client := open(t)
			store, log := edited(t, m.old, m.new)
			require.Equal(t, m.lost, whatIsLost(t, store, log, client))
		})
	}
}

// whatIsLost plays what must not be collected: a tile with an owner, one that is ahead of its checkpoint, and one whose
// owner came back in time; it names the first that is gone.
func whatIsLost(t *testing.T, store *redisfence.Store, log *redisstream.Log, client redis.UniversalClient) string {
	t.Helper()
	ctx := t.Context()
	commit := func(tile fence.TileID, prev fence.Position, install bool) fence.Position {
		r, err := store.Commit(ctx, fence.Commit{Tile: tile, Epoch: 1, Contact: "a:1", Prev: prev,
			Tick: fence.Tick(prev.Seq + 1), Payload: []byte("x"), Install: install})
		require.NoError(t, err)
		return r.Position
	}
	tiles := map[string]fence.TileID{}
	for _, name := range []string{"owned", "ahead", "woken"} {
		tile := fence.TileID(rand.Uint64()>>1 | 1)
		tiles[name] = tile
		at := commit(tile, fence.Position{}, true)
		require.NoError(t, store.SaveSnapshot(ctx, fence.SnapshotWrite{Tile: tile, Position: at, Tick: 1}))
		if name == "ahead" {
			commit(tile, at, false)
		}
		if name != "owned" {
			require.NoError(t, client.Del(ctx, fence.KeysOf(tile).Owner).Err())
		}
		require.NoError(t, log.Expire(ctx, []stream.Quiet{{Tile: tile, Durable: at}}, time.Second)[0].Err)
		if name == "woken" {
			commit(tile, at, true)
		}
	}
	time.Sleep(1500 * time.Millisecond)
	for _, name := range []string{"owned", "ahead", "woken"} {
		if client.Exists(ctx, fence.KeysOf(tiles[name]).Stream).Val() == 0 {
			return name
		}
	}
	return ""
}
