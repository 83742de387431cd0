package redisfence_test

import (
	"os"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// replicaPaused: what the replica has not confirmed is on the master and provisional. The same commit
// again is recognised, and confirmed once the replica is back.
func replicaPaused(b *breakable) {
	store := b.open(&redisfence.Config{MinReplicas: 1})
	tile, last := b.founded()
	_, replica := b.serving(tile)
	b.pause(replica)
	c := follow(tile, 1, last)
	c.Replicas = fence.AllReplicas
	for _, duplicate := range []bool{false, true, true} {
		began := time.Now()
		r, err := store.Commit(b.Context(), c)
		require.Zero(b, r)
		var unconfirmed *fence.UnconfirmedError
		require.ErrorAs(b, err, &unconfirmed)
		require.ErrorIs(b, err, fence.ErrUnconfirmed)
		require.Equal(b, fence.UnconfirmedError{Tile: tile, Receipt: fence.Receipt{Position: c.Next(),
			Duplicate: duplicate}, Want: 1}, *unconfirmed)
		require.GreaterOrEqual(b, time.Since(began), 200*time.Millisecond)
		require.Less(b, time.Since(began), 4*time.Second)
	}
	require.Len(b, b.entries(tile), 2)
	// A caller that asks for no replica waits for none.
	plain := c
	plain.Replicas = 0
	r, err := store.Commit(b.Context(), plain)
	require.NoError(b, err)
	require.Equal(b, fence.Receipt{Position: c.Next(), Duplicate: true}, r)
	require.ErrorIs(b, store.Confirm(b.Context(), tile, c.Next()), fence.ErrUnconfirmed)

	require.NoError(b, replica.Signal(devstack.GoOn))
	waittest.Until(b, func() bool {
		r, err = store.Commit(b.Context(), c)
		return err == nil
	}, 20*time.Second, 50*time.Millisecond)
	require.Equal(b, fence.Receipt{Position: c.Next(), Duplicate: true, Replicas: 1}, r)
	waittest.Until(b, func() bool { return store.Confirm(b.Context(), tile, c.Next()) == nil }, 20*time.Second,
		50*time.Millisecond)
	require.Len(b, b.entries(tile), 2)
}

// replicaFailed: a replica that the cluster has given up still is one of all replicas, since it may come
// back and be promoted; unless IgnoreFailedReplicas is set, and MinReplicas does not say otherwise.
func replicaFailed(b *breakable) {
	lenient := b.open(&redisfence.Config{IgnoreFailedReplicas: true, AllowNoReplicas: true})
	atLeastOne := b.open(&redisfence.Config{IgnoreFailedReplicas: true, MinReplicas: 1})
	tile, last := b.founded()
	_, replica := b.serving(tile)
	b.pause(replica)
	c := follow(tile, 1, last)
	c.Replicas = fence.AllReplicas
	b.awaitFailed(tile, replica)
	r, err := lenient.Commit(b.Context(), c)
	require.NoError(b, err)
	require.Equal(b, fence.Receipt{Position: c.Next()}, r)
	for _, strict := range []*redisfence.Store{b.store, atLeastOne} {
		_, err = strict.Commit(b.Context(), c)
		var unconfirmed *fence.UnconfirmedError
		require.ErrorAs(b, err, &unconfirmed)
		require.Equal(b, 1, unconfirmed.Want)
	}
	require.NoError(b, replica.Signal(devstack.GoOn))
	require.Equal(b, fence.Receipt{Position: c.Next(), Duplicate: true, Replicas: 1}, b.settle(c))
}

// awaitFailed waits until a tile's master lists a replica as failed.
func (b *breakable) awaitFailed(tile fence.TileID, replica *devstack.Process) {
	b.Helper()
	b.await("the replica is given up", func() bool {
		node, err := b.client.MasterForKey(b.Context(), fence.KeysOf(tile).Owner)
		require.NoError(b, err)
		nodes, err := node.ClusterNodes(b.Context()).Result()
		require.NoError(b, err)
		for line := range strings.Lines(nodes) {
			if strings.Contains(line, replica.Addr()+"@") && strings.Contains(line, "slave,fail ") {
				return true
			}
		}
		return false
	})
}

// masterHandedOver: an orderly handover, as before maintenance. The store's idea of the master is out of
// date; the owner presents the same commits until they land.
func masterHandedOver(b *breakable) {
	tile, last := b.founded()
	_, replica := b.serving(tile)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(stop)
		time.Sleep(100 * time.Millisecond)
		if err := b.node(replica.Addr()).ClusterFailover(b.Context()).Err(); err != nil {
			b.Errorf("CLUSTER FAILOVER: %v", err)
		}
		time.Sleep(2 * time.Second)
	})
	n := 1
	for running := true; running; n++ {
		select {
		case <-stop:
			running = false
		default:
		}
		c := follow(tile, 1, last)
		c.Replicas = []int{0, fence.AllReplicas}[n%2]
		last = b.settle(c).Position
	}
	wg.Wait()
	require.NoError(b, fencetest.CheckHistory(tile, b.entries(tile)))
	require.Len(b, b.entries(tile), n)
	master, _ := b.serving(tile)
	require.Equal(b, replica.Addr(), master.Addr())
}

// masterKilled: the owner goes on on the promoted replica by presenting the same commit again, and
// nothing that was confirmed is missing. The promoted node has no replica, so it confirms nothing.
func masterKilled(b *breakable) {
	tile, last := b.founded()
	master, replica := b.serving(tile)
	confirmed := []fence.Position{last}
	killed := time.Time{}
	var gap time.Duration
	for i := range 60 {
		if i == 20 {
			killed = time.Now()
			require.NoError(b, master.Signal(os.Kill))
		}
		c := follow(tile, 1, last)
		if i < 20 {
			c.Replicas = fence.AllReplicas
		}
		last = b.settle(c).Position
		confirmed = append(confirmed, last)
		if i == 20 {
			gap = time.Since(killed)
		}
	}
	last = b.aloneConfirmsNothing(tile, last)
	confirmed = append(confirmed, last)
	b.Logf("the first commit after the kill was accepted %v later", gap.Round(time.Millisecond))
	entries := b.entries(tile)
	require.NoError(b, fencetest.CheckHistory(tile, entries))
	require.Len(b, entries, len(confirmed))
	for i, e := range entries {
		require.Equal(b, confirmed[i], e.Position)
	}
	require.NoError(b, master.Restart(b.Context()))
	b.await("the killed master is back, as a replica", b.whole)
	now, _ := b.serving(tile)
	require.Equal(b, replica.Addr(), now.Addr())
	c := follow(tile, 1, last)
	c.Replicas = fence.AllReplicas
	require.Equal(b, 1, b.settle(c).Replicas)
}

// aloneConfirmsNothing: a commit that all replicas are to have is not confirmed by a master without any, unless
// AllowNoReplicas says that the shard is meant to have none.
func (b *breakable) aloneConfirmsNothing(tile fence.TileID, last fence.Position) fence.Position {
	b.Helper()
	c := follow(tile, 1, last)
	c.Replicas = fence.AllReplicas
	for range 2 {
		_, err := b.store.Commit(b.Context(), c)
		var unconfirmed *fence.UnconfirmedError
		require.ErrorAs(b, err, &unconfirmed)
		require.Equal(b, 1, unconfirmed.Want)
		require.Zero(b, unconfirmed.Receipt.Replicas)
		require.ErrorContains(b, err, "attach one, or set redisfence.Config.AllowNoReplicas")
	}
	require.ErrorIs(b, b.store.Confirm(b.Context(), tile, c.Next()), fence.ErrUnconfirmed)
	alone := b.open(&redisfence.Config{AllowNoReplicas: true})
	r, err := alone.Commit(b.Context(), c)
	require.NoError(b, err)
	require.NoError(b, alone.Confirm(b.Context(), tile, c.Next()))
	require.Equal(b, fence.Receipt{Position: c.Next(), Duplicate: true}, r)
	return r.Position
}
