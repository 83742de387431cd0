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
	for _, seed := range append(streamtest.Seeds(t, 8), twoPasses) {
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
	if function, is := args[1].(string); is && args[0] == "fcall" {
		args[1] = strings.Replace(function, "tilefence_", r.library+"_", 1)
	}
}

// mutants are edits of the functions, each of a text that must be in them exactly once.
var mutants = []struct{ name, old, new string }{
	{"intact", "", ""},
	{"one entry too far", "'MINID', floor .. '-0')", "'MINID', (tonumber(floor) + 1) .. '-0')"},
	{"highest relay counts", "  lowest_first(live)\n", "  local top\n" +
		"  for _, m in ipairs(live) do if m.kind == 'relay' and (not top or m.seq > top.seq) then top = m end end\n" +
		"  for _, m in ipairs(live) do if m.kind == 'relay' then m.seq, m.text = top.seq, top.text end end\n" +
		"  lowest_first(live)\n"},
	{"no lease", "if not seq or not at or at < oldest then", "if not seq or not at then"},
	{"half a lease", "newest - lease", "newest - lease / 2"},
	{"trims are forgotten", "redis.call('HSET', keys[1], 'trimmed', floor)", "redis.call('HDEL', keys[1], 'trimmed')"},
	{"pending mark ignored", "    if kind then", "    if kind and kind ~= 'pending' then"},
	{"groups ignored", "  local idle = there and pending_of(keys[2], trimmed, lease, live)", "  local idle = false"},
	{"evicts past the snapshot", "live[i] and live[i].seq < tonumber(snap)", "live[i]"},
	{"evicts once too often", "most > 0 and bytes > most and held", "most > 0 and bytes * 2 > most and held"},
	{"marks go back", "if old and args[i + 2] == '0' and (number(old) or 0) > s then seq = old end", ""},
	{"nobody is told", "s + 1 < trimmed and 'resync' or 'ok'", "'ok'"},
	{"told too late", "s + 1 < trimmed and", "s + 2 < trimmed and"},
	{"told too soon", "s + 1 < trimmed and", "s <= trimmed and"},
}

// TestReadersCatch edits the functions, a trim that goes one entry too far among others, and requires that the readers
// notice, and that they notice nothing when nothing is wrong.
func TestReadersCatch(t *testing.T) {
	t.Parallel()
	for i, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			text := redisfence.Library()
			if m.old != "" {
				require.Equal(t, 1, strings.Count(text, m.old), "the edit must have one place: %s", m.old)
				text = strings.Replace(text, m.old, m.new, 1)
			}
			name := fmt.Sprintf("readers%d_%x", i, rand.Uint32())
			text = strings.ReplaceAll(strings.Replace(text, redisfence.LibraryName, name, 1), "'tilefence_",
				"'"+name+"_")
			store, _, client := open(t)
			require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
				return node.FunctionLoad(ctx, text).Err()
			}))
			t.Cleanup(func() {
				assert.NoError(t, client.ForEachMaster(context.WithoutCancel(t.Context()),
					func(ctx context.Context, node *redis.Client) error {
						return node.FunctionDelete(ctx, name).Err()
					}))
			})
			edited := redis.NewClusterClient(&redis.ClusterOptions{Addrs: stacktest.Redis(t)})
			t.Cleanup(func() { _ = edited.Close() })
			edited.AddHook(renamed{library: name})
			functions, err := redisfence.New(edited, &redisfence.Config{TTL: 5 * time.Minute, AllowNoPersistence: true})
			require.NoError(t, err)
			h := readers(t, redisstream.New(functions, client), store, client)
			if m.old == "" {
				_, err := streamtest.Readers(t.Context(), h, rand.Uint64(), 100)
				require.NoError(t, err)
				return
			}
			for n := range 300 {
				if _, err = streamtest.Readers(t.Context(), h, rand.Uint64(), 250); err != nil {
					require.ErrorIs(t, err, streamtest.ErrBroken)
					t.Logf("play %d: %v", n+1, err)
					return
				}
			}
			t.Fatal("nobody noticed")
		})
	}
}
