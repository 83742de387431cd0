package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/redislib"
)

func (b *breakable) flushFunctions() {
	b.Helper()
	b.eachMaster(func(ctx context.Context, node *redis.Client) error { return node.FunctionFlush(ctx).Err() })
}

// replaceLibrary puts an edited library on every master, and takes it away when the test ends.
func (b *breakable) replaceLibrary(old, new string) {
	b.Helper()
	text := strings.Replace(redisfence.Library(), old, new, 1)
	require.NotEqual(b, redisfence.Library(), text)
	b.eachMaster(func(ctx context.Context, node *redis.Client) error {
		return node.FunctionLoadReplace(ctx, text).Err()
	})
	b.Cleanup(b.deleteLibrary)
}

func (b *breakable) deleteLibrary() {
	ctx := b.ctx()
	assert.NoError(b, b.client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		return node.FunctionFlush(ctx).Err()
	}))
}

// revisions is what the masters say of their libraries.
func (b *breakable) revisions() (revisions []int64) {
	b.Helper()
	var mu sync.Mutex
	b.eachMaster(func(ctx context.Context, node *redis.Client) error {
		reply, err := node.FCallRO(ctx, "tilefence_revision_v1", nil).Slice()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		revisions = append(revisions, reply[0].(int64))
		return nil
	})
	return revisions
}

// libraryMissing: a server without the library, new or flushed, is given it on the way.
func libraryMissing(b *breakable) {
	tile, last := b.founded()
	for _, write := range []func() error{
		func() error {
			r, err := b.store.Commit(b.Context(), follow(tile, 1, last))
			last = r.Position
			return err
		},
		func() error {
			c := follow(tile, 1, last)
			c.Replicas = fence.AllReplicas
			r, err := b.store.Commit(b.Context(), c)
			require.Equal(b, 1, r.Replicas)
			last = r.Position
			return err
		},
		func() error {
			return b.store.SaveSnapshot(b.Context(), fence.SnapshotWrite{Tile: tile, Position: last, Tick: 1,
				Blob: []byte("state")})
		},
		func() error {
			_, err := b.store.Functions().Call(b.Context(), "mark", redislib.FunctionCall{Tile: tile,
				Function: "tilefence_mark_v1",
				Keys:     []string{fence.KeysOf(tile).Marks}, Args: []any{"bridge", "1", "0"}})
			return err
		},
		func() error {
			_, err := b.store.Rebase(b.Context(), fence.Rebase{Tile: tile, Epoch: 2, Contact: "b:1",
				Seq: last.Seq + 10})
			return err
		},
	} {
		b.flushFunctions()
		require.NoError(b, write())
	}
	require.Len(b, b.entries(tile), 4)
	// The replicas have it as soon as their masters have.
	require.NoError(b, b.store.Load(b.Context()))
}

func libraryNewer(b *breakable) {
	b.replaceLibrary(fmt.Sprintf("REVISION, DIGEST = %d,", redisfence.Revision), "REVISION, DIGEST = 1000000,")
	require.NoError(b, b.store.Load(b.Context()))
	require.Equal(b, []int64{1000000, 1000000, 1000000}, b.revisions())
	tile, _ := b.founded() // and is used as it is
	require.Len(b, b.entries(tile), 1)
}

func libraryAltered(b *breakable) {
	for _, edit := range []struct{ old, new string }{
		{"if e < current then", "if e < current - 1 then"},
		{fmt.Sprintf("DIGEST = %d, '", redisfence.Revision), fmt.Sprintf("DIGEST = %d, 'other", redisfence.Revision)},
		{"return {REVISION, DIGEST}", "return {0, DIGEST}"},
		{"return {REVISION, DIGEST}", "return {'one'}"},
	} {
		b.replaceLibrary(edit.old, edit.new)
		err := b.store.Load(b.Context())
		require.ErrorIs(b, err, fence.ErrFunctions, edit.new)
		var unusable *fence.FunctionsError
		require.ErrorAs(b, err, &unusable)
		require.Contains(b, b.stack.CoordAddrs, unusable.Node)
		b.deleteLibrary()
	}
	require.NoError(b, b.store.Load(b.Context()))
}

func libraryOfOthers(b *breakable) {
	b.flushFunctions()
	b.Cleanup(b.deleteLibrary)
	b.eachMaster(func(ctx context.Context, node *redis.Client) error {
		return node.FunctionLoad(ctx, "#!lua name=theirs\n"+
			"redis.register_function('tilefence_mark_v1', function() return 'theirs' end)").Err()
	})
	require.ErrorIs(b, b.store.Load(b.Context()), fence.ErrFunctions)
	_, err := b.store.Commit(b.Context(), founding(newTile()))
	require.ErrorIs(b, err, fence.ErrFunctions)
	var failed *fence.StoreError
	require.ErrorAs(b, err, &failed)
}

func libraryLoadedAtOnce(b *breakable) {
	for range 5 {
		b.flushFunctions()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { assert.NoError(b, b.store.Load(b.Context())) })
		}
		wg.Wait()
	}
}

// settingsEviction: a server that would delete owners and streams is not used.
func settingsEviction(b *breakable) {
	set := func(limit, policy string) {
		b.Helper()
		b.eachMaster(func(ctx context.Context, node *redis.Client) error {
			if err := node.ConfigSet(ctx, "maxmemory-policy", policy).Err(); err != nil {
				return err
			}
			return node.ConfigSet(ctx, "maxmemory", limit).Err()
		})
	}
	b.Cleanup(func() {
		_ = b.client.ForEachMaster(b.ctx(), func(ctx context.Context, node *redis.Client) error {
			return errorsOf(node.ConfigSet(ctx, "maxmemory", "0"),
				node.ConfigSet(ctx, "maxmemory-policy", "noeviction"))
		})
	})
	tile, last := b.founded()
	for _, policy := range []string{"allkeys-lru", "volatile-ttl", "volatile-lru"} {
		set("100mb", policy)
		err := b.store.Load(b.Context())
		var setting *fence.SettingError
		require.ErrorAs(b, err, &setting)
		require.ErrorIs(b, err, fence.ErrSetting)
		require.Equal(b, []string{"maxmemory-policy", policy}, []string{setting.Setting, setting.Value})
	}
	refusesToWrite(b, b.store, tile, last) // though its functions are there
	set("100mb", "noeviction")
	refusesToWrite(b, b.store, tile, last) // until the next Load
	set("100mb", "allkeys-lru")
	b.flushFunctions()
	unloaded, err := redisfence.New(b.client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(b, err)
	refusesToWrite(b, unloaded, tile, last) // nor does a call give a server its functions that Load would not
	set("100mb", "noeviction")
	r, err := unloaded.Commit(b.Context(), follow(tile, 1, last))
	require.NoError(b, err, "and now it does")
	require.Equal(b, last.Seq+1, r.Position.Seq)
	require.NoError(b, b.store.Load(b.Context()))
	b.settle(follow(tile, 1, r.Position))
	set("0", "allkeys-lru") // no limit: nothing is ever evicted
	require.NoError(b, b.store.Load(b.Context()))
}

// refusesToWrite: a store whose Load was refused changes nothing, by whichever call.
func refusesToWrite(b *breakable, s *redisfence.Store, tile fence.TileID, last fence.Position) {
	b.Helper()
	c := follow(tile, 1, last)
	confirmed := c
	confirmed.Replicas = fence.AllReplicas
	for _, write := range []func() error{
		func() error { _, err := s.Commit(b.Context(), c); return err },
		func() error { _, err := s.Commit(b.Context(), confirmed); return err },
		func() error {
			_, err := s.Rebase(b.Context(), fence.Rebase{Tile: tile, Epoch: 2, Contact: "b:1", Seq: last.Seq + 10})
			return err
		},
		func() error {
			return s.SaveSnapshot(b.Context(), fence.SnapshotWrite{Tile: tile, Position: last, Tick: 1,
				Blob: []byte("state")})
		},
		func() error {
			_, err := s.Functions().Call(b.Context(), "mark", redislib.FunctionCall{Tile: tile,
				Function: "tilefence_mark_v1",
				Keys:     []string{fence.KeysOf(tile).Marks}, Args: []any{"bridge", "1", "0"}})
			return err
		},
	} {
		err := write()
		require.ErrorIs(b, err, fence.ErrSetting)
		var failed *fence.StoreError
		require.ErrorAs(b, err, &failed)
	}
	require.Len(b, b.entries(tile), 1)
}

// settingsPersistence: a server that would come back empty from a restart is refused, master or replica, also one with
// RDB files alone, unless the configuration says that none is meant to keep anything. What is switched off later is
// found.
func settingsPersistence(b *breakable) {
	careful, err := redisfence.New(b.client, nil)
	require.NoError(b, err)
	set := func(nodes []string, name, value string) {
		b.Helper()
		for _, addr := range nodes {
			require.NoError(b, b.node(addr).ConfigSet(b.ctx(), name, value).Err())
		}
	}
	b.Cleanup(func() {
		set(b.stack.CoordAddrs, "appendonly", "no")
		set(b.stack.CoordAddrs, "save", "")
	})
	for _, save := range []string{"", "3600 1"} {
		set(b.stack.CoordAddrs, "save", save)
		err := careful.Load(b.Context())
		var setting *fence.SettingError
		require.ErrorAs(b, err, &setting)
		require.Equal(b, []string{"appendonly", "no"}, []string{setting.Setting, setting.Value})
		require.ErrorContains(b, err, "redisfence.Config.Persistence")
		require.NoError(b, b.store.Load(b.Context()))
	}
	tile, _ := b.founded()
	_, replica := b.serving(tile)
	set(b.stack.CoordAddrs, "appendonly", "yes")
	set([]string{replica.Addr()}, "appendonly", "no")
	var setting *fence.SettingError
	b.await("one replica is enough, as soon as the cluster lists it: it may be the next master", func() bool {
		return errors.As(careful.Load(b.Context()), &setting)
	})
	require.Equal(b, "redis "+replica.Addr(), setting.Node)
	set([]string{replica.Addr()}, "appendonly", "yes")
	require.NoError(b, careful.Load(b.Context()))

	watched, err := redisfence.New(b.client, nil)
	require.NoError(b, err)
	require.Empty(b, watched.Check(b.Context()))
	set([]string{replica.Addr()}, "appendonly", "no")
	var found []error
	b.await("it is found", func() bool {
		redisfence.ForgetChecks(watched)
		found = watched.Check(b.Context())
		return len(found) == 1
	})
	require.ErrorAs(b, found[0], &setting)
	require.Equal(b, "redis "+replica.Addr(), setting.Node)
	b.settle(follow(tile, 1, b.entries(tile)[0].Position)) // commits go on
}

// memoryFull: a server without memory refuses the whole commit; the same commit goes in later. What frees memory it
// does not refuse.
func memoryFull(b *breakable) {
	tile, last := b.founded()
	node, err := b.client.MasterForKey(b.Context(), fence.KeysOf(tile).Owner)
	require.NoError(b, err)
	b.Cleanup(func() { _ = node.ConfigSet(b.ctx(), "maxmemory", "0") })
	before := dump(b.T, b.client, tile)
	require.NoError(b, node.ConfigSet(b.Context(), "maxmemory", "1").Err())
	c := follow(tile, 1, last)
	for _, write := range []func() error{
		func() error { _, err := b.store.Commit(b.Context(), c); return err },
		func() error {
			confirmed := c
			confirmed.Replicas = 1
			_, err := b.store.Commit(b.Context(), confirmed)
			return err
		},
		func() error {
			_, err := b.store.Rebase(b.Context(), fence.Rebase{Tile: tile, Epoch: 2, Contact: "b:1", Seq: 100})
			return err
		},
	} {
		err := write()
		var failed *fence.StoreError
		require.ErrorAs(b, err, &failed)
		require.True(b, redis.IsOOMError(err), "the cause is there to be asked for: %v", err)
	}
	require.Equal(b, before, dump(b.T, b.client, tile))
	// The way out stays open: a snapshot, marks, and a trim, which gives memory back.
	require.NoError(b, b.store.SaveSnapshot(b.Context(), fence.SnapshotWrite{Tile: tile, Position: last, Tick: 1,
		Blob: []byte("state")}))
	k := fence.KeysOf(tile)
	for _, f := range []redislib.FunctionCall{
		{Tile: tile, Function: "tilefence_mark_v1", Keys: []string{k.Marks}, Args: []any{"bridge", "1", "0"}},
		{Tile: tile, Function: "tilefence_trim_v1", Keys: []string{k.Marks, k.Stream, k.Snapshot},
			Args: []any{"60000", "0"}},
	} {
		_, err := b.store.Functions().Call(b.Context(), "trim", f)
		require.NoError(b, err)
	}
	require.NoError(b, node.ConfigSet(b.Context(), "maxmemory", "0").Err())
	r, err := b.store.Commit(b.Context(), c)
	require.NoError(b, err)
	require.False(b, r.Duplicate)
}

func errorsOf(replies ...*redis.StatusCmd) (err error) {
	for _, r := range replies {
		if err == nil {
			err = r.Err()
		}
	}
	return err
}
