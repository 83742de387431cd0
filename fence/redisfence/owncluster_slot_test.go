package redisfence_test

import (
	"context"
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

	m := b.migrate(tile)
	commit(0) // all keys are still here: they are written as if nothing were on the move
	k := fence.KeysOf(tile)
	for i, key := range []string{k.Owner, k.Stream, k.Snapshot} {
		m.move(key)
		if i < 2 {
			// Some keys here and some there: no owner may write, and nothing is lost by trying.
			_, err := b.store.Commit(b.Context(), follow(tile, 1, last))
			require.ErrorIs(b, err, fence.ErrUnknownOutcome)
		}
	}
	commit(0) // all of them there: the client is sent after them
	// No replica can be asked to confirm on a slot that moves, so the commit goes through and says so.
	c := follow(tile, 1, last)
	c.Replicas = fence.AllReplicas
	_, err = b.store.Commit(b.Context(), c)
	var unconfirmed *fence.UnconfirmedError
	require.ErrorAs(b, err, &unconfirmed)
	last, committed = unconfirmed.Receipt.Position, committed+1
	c = follow(tile, 1, last)
	c.Install, c.Replicas = true, fence.AllReplicas
	_, err = b.store.Commit(b.Context(), c)
	require.ErrorIs(b, err, fence.ErrNotApplied, "an install waits until the slot has moved")
	m.finish()
	for range 5 {
		commit(0)
		commit(fence.AllReplicas)
	}
	entries := b.entries(tile)
	require.Len(b, entries, committed)
	require.NoError(b, fencetest.CheckHistory(tile, entries))
	now, _ := b.serving(tile)
	require.Equal(b, m.to.Options().Addr, now.Addr())
	require.NotEqual(b, time.Duration(0), b.remaining(tile), "the time to live moves with the key")
}

// slotMigratedBare: a tile without a snapshot lacks one of its keys, which on a moving slot may be on
// either side. It cannot be written until the slot has moved, and loses nothing by trying.
func slotMigratedBare(b *breakable) {
	tile, last := b.founded()
	c := follow(tile, 1, last)
	m := b.migrate(tile)
	k := fence.KeysOf(tile)
	for _, key := range []string{k.Owner, k.Stream} {
		_, err := b.store.Commit(b.Context(), c)
		require.ErrorIs(b, err, fence.ErrUnknownOutcome)
		m.move(key)
	}
	_, err := b.store.Commit(b.Context(), c)
	require.ErrorIs(b, err, fence.ErrUnknownOutcome)
	m.finish()
	b.settle(c)
	require.Len(b, b.entries(tile), 2)
}

// migration is a slot on its way from one master to another.
type migration struct {
	b        *breakable
	slot     int64
	from, to *redis.Client
	masters  []*redis.Client
}

func (b *breakable) migrate(tile fence.TileID) *migration {
	b.Helper()
	b.nodeTimeout("15000") // a master that waits for a busy machine is not replaced half-way
	b.Cleanup(func() { b.nodeTimeout("1000") })
	source, _ := b.serving(tile)
	m := &migration{b: b, from: b.node(source.Addr())}
	var err error
	m.slot, err = m.from.ClusterKeySlot(b.Context(), fence.KeysOf(tile).Owner).Result()
	require.NoError(b, err)
	m.to, m.masters = b.otherMaster(source.Addr())
	b.run(m.to, "cluster", "setslot", m.slot, "importing", b.id(m.from))
	b.run(m.from, "cluster", "setslot", m.slot, "migrating", b.id(m.to))
	return m
}

func (m *migration) move(key string) {
	m.b.Helper()
	host, port, _ := strings.Cut(m.to.Options().Addr, ":")
	m.b.run(m.from, "migrate", host, port, key, 0, 5000)
}

func (m *migration) finish() {
	m.b.Helper()
	for _, node := range append([]*redis.Client{m.to}, m.masters...) {
		m.b.run(node, "cluster", "setslot", m.slot, "node", m.b.id(m.to))
	}
}

// nodeTimeout is after how many milliseconds a silent master is replaced.
func (b *breakable) nodeTimeout(ms string) {
	b.Helper()
	for _, addr := range b.stack.CoordAddrs {
		err := b.node(addr).ConfigSet(context.Background(), "cluster-node-timeout", ms).Err()
		require.NoError(b, err)
	}
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
