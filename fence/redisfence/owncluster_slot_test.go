package redisfence_test

import (
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
)

// slotMigrated moves a tile's slot to another master, key by key, while its owner commits: each commit is
// presented until it lands, and lands once.
func slotMigrated(b *breakable) {
	r := fence.Rebase{Tile: newTile(), Epoch: 1, Contact: "a:1", Seq: 1, Blob: []byte("state")}
	receipt, err := b.store.Rebase(b.Context(), r)
	require.NoError(b, err)
	tile, last, committed := r.Tile, receipt.Position, 1
	commit := func(replicas int) {
		b.Helper()
		c := follow(tile, 1, last)
		c.Replicas = replicas
		last = b.settle(c).Position
		committed++
	}
	commit(0)

	k := fence.KeysOf(tile)
	source, _ := b.serving(tile)
	from := b.node(source.Addr())
	slot, err := from.ClusterKeySlot(b.Context(), k.Owner).Result()
	require.NoError(b, err)
	to, masters := b.otherMaster(source.Addr())
	fromID, toID := b.id(from), b.id(to)
	b.run(to, "cluster", "setslot", slot, "importing", fromID)
	b.run(from, "cluster", "setslot", slot, "migrating", toID)
	commit(0) // all keys are still here: they are written as if nothing were on the move
	host, port, _ := strings.Cut(to.Options().Addr, ":")
	for i, key := range []string{k.Owner, k.Stream, k.Snapshot} {
		b.run(from, "migrate", host, port, key, 0, 5000)
		if i < 2 {
			// Some keys here and some there: nobody may write, and nothing is lost by trying.
			_, err := b.store.Commit(b.Context(), follow(tile, 1, last))
			require.ErrorIs(b, err, fence.ErrUnknownOutcome)
		}
	}
	commit(0) // all of them there: the client is sent after them
	for _, node := range masters {
		b.run(node, "cluster", "setslot", slot, "node", toID)
	}
	for range 5 {
		commit(0)
		commit(fence.AllReplicas)
	}
	entries := b.entries(tile)
	require.Len(b, entries, committed)
	require.NoError(b, fencetest.CheckHistory(tile, entries))
	now, _ := b.serving(tile)
	require.Equal(b, to.Options().Addr, now.Addr())
	require.NotEqual(b, time.Duration(0), b.remaining(tile), "the time to live moves with the key")
}

func (b *breakable) run(node *redis.Client, args ...any) {
	b.Helper()
	require.NoError(b, node.Do(b.Context(), args...).Err(), "%v", args)
}

func (b *breakable) id(node *redis.Client) string {
	b.Helper()
	id, err := node.ClusterMyID(b.Context()).Result()
	require.NoError(b, err)
	return id
}

// otherMaster is a master that is not at addr, and all masters.
func (b *breakable) otherMaster(addr string) (other *redis.Client, masters []*redis.Client) {
	b.Helper()
	for _, a := range b.stack.CoordAddrs {
		node := b.node(a)
		info, err := node.Info(b.Context(), "replication").Result()
		require.NoError(b, err)
		if !strings.Contains(info, "role:master") {
			continue
		}
		masters = append(masters, node)
		if a != addr {
			other = node
		}
	}
	require.Len(b, masters, 3)
	return other, masters
}
