package redisfence_test

import (
	"errors"
	"os"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/redislib"
)

// The two ways in which an asynchronously replicated store breaks a fence that believes its first answer.
// Each test first shows the hole with the technique left out, as a caller that ignores confirmation, and
// then that it is closed with it.

// holePausedMaster: a master that sleeps through its own replacement answers OK to what waited in its
// socket, under an epoch that is over, and nothing of it survives. Asked to confirm, it cannot.
func holePausedMaster(b *breakable) {
	const tiles = 8 // of which each has a call of either kind waiting in the master's socket
	tile, _ := b.founded()
	master, replica := b.serving(tile)
	plain, confirmed := b.foundedOn(master.Addr(), tiles), b.foundedOn(master.Addr(), tiles)
	commits := make([]fence.Commit, 0, 2*tiles)
	for _, c := range append(plain, confirmed...) {
		late := follow(c.Tile, 1, c.Next())
		late.Payload = []byte("by the owner that slept too")
		commits = append(commits, late)
	}
	for i := tiles; i < len(commits); i++ {
		commits[i].Replicas = 1
	}
	sleepers := b.sleepers(master.Addr(), len(commits))
	b.pause(master)
	answers := make([]error, len(commits))
	var wg sync.WaitGroup
	for i, c := range commits {
		wg.Go(func() { _, answers[i] = sleepers[i].Commit(b.ctx(), c) })
	}

	b.await("the replica is promoted", func() bool {
		node, err := b.client.MasterForKey(b.Context(), fence.KeysOf(tile).Owner)
		return err == nil && node.Options().Addr == replica.Addr()
	})
	// The first tiles of either kind get a new owner. The others' owner lives.
	for _, i := range []int{0, tiles} {
		successor := follow(commits[i].Tile, 2, commits[i].Prev)
		successor.Contact, successor.Install = "b:1", true
		b.settle(successor)
	}
	require.NoError(b, master.Signal(devstack.GoOn))
	wg.Wait()
	b.await("the old master is a replica", b.whole)

	believed := 0
	for i, c := range commits {
		entries := b.entries(c.Tile)
		require.NotEqual(b, c.Next(), entries[len(entries)-1].Position, "what a paused master took has survived")
		switch {
		case i >= tiles:
			require.Error(b, answers[i], "a paused master confirmed a write")
			require.True(b, errors.Is(answers[i], fence.ErrUnconfirmed) ||
				errors.Is(answers[i], fence.ErrUnknownOutcome) ||
				errors.Is(answers[i], fence.ErrNotApplied), "%v", answers[i])
		case answers[i] == nil:
			believed++
		}
	}
	b.Logf("without WAIT, %d of %d commits were answered OK, and none survived; with it: %v", believed, tiles,
		answers[tiles])
	require.NotZero(b, believed, "the hole did not show")

	for i, c := range commits {
		if i == 0 || i == tiles { // superseded: the same commit again learns by whom
			_, err := b.store.Commit(b.Context(), c)
			var refused *fence.RefusedError
			require.ErrorAs(b, err, &refused)
			require.ErrorIs(b, err, fence.ErrStale)
			require.Equal(b, "b:1", refused.Current.Contact)
			continue
		}
		// The living owner whose commit was answered OK goes on, is refused because the stream is
		// behind, and re-appends it; the one that was not presents it again.
		if answers[i] == nil {
			_, err := b.store.Commit(b.Context(), follow(c.Tile, 1, c.Next()))
			var refused *fence.RefusedError
			require.ErrorAs(b, err, &refused)
			require.ErrorIs(b, err, fence.ErrBehind)
			require.Equal(b, c.Prev, refused.Current.Position)
		}
		c.Replicas = fence.AllReplicas
		// The old master may be a replica that has only just begun to copy.
		got := b.settle(c)
		require.Equal(b, c.Next(), got.Position)
		require.Equal(b, 1, got.Replicas)
	}
}

// holeLinkCut: a replica that lost its link before an install, and is promoted after it, brings back the
// epoch before it. An install that asks for all replicas is not confirmed then, and its owner does not serve.
func holeLinkCut(b *breakable) {
	careless := b.open(&redisfence.Config{IgnoreFailedReplicas: true, AllowNoReplicas: true})
	tile, _ := b.founded()
	master, replica := b.serving(tile)
	founded := b.foundedOn(master.Addr(), 3)
	installs := make([]fence.Commit, len(founded))
	for i, c := range founded {
		installs[i] = follow(c.Tile, 2, c.Next())
		installs[i].Contact, installs[i].Install = "b:1", true
	}
	// The replica sleeps, and its connection is gone when it wakes.
	b.pause(replica)
	b.run(b.node(master.Addr()), "client", "kill", "type", "replica")

	// Believing the master alone, and asking for all replicas but those the cluster has given up: installed.
	_, err := b.store.Commit(b.Context(), installs[0])
	require.NoError(b, err)
	b.awaitFailed(tile, replica)
	installs[1].Replicas = fence.AllReplicas
	r, err := careless.Commit(b.Context(), installs[1])
	require.NoError(b, err)
	require.Zero(b, r.Replicas)
	// Asking for all replicas: installed on the master, and known to be no more than that.
	installs[2].Replicas = fence.AllReplicas
	for _, duplicate := range []bool{false, true} {
		_, err = b.store.Commit(b.Context(), installs[2])
		var unconfirmed *fence.UnconfirmedError
		require.ErrorAs(b, err, &unconfirmed)
		require.Equal(b, fence.UnconfirmedError{Tile: installs[2].Tile, Want: 1,
			Receipt: fence.Receipt{Position: installs[2].Next(), Duplicate: duplicate}}, *unconfirmed)
	}

	require.NoError(b, master.Signal(os.Kill))
	require.NoError(b, replica.Signal(devstack.GoOn))
	b.await("the replica is promoted", func() bool {
		node, err := b.client.MasterForKey(b.Context(), fence.KeysOf(tile).Owner)
		return err == nil && node.Options().Addr == replica.Addr()
	})
	for i, c := range founded {
		owner, err := b.store.Owner(b.Context(), c.Tile)
		require.NoError(b, err)
		require.Equal(b, fence.Epoch(1), owner.Epoch, "the hole did not show")
		b.settle(follow(c.Tile, 1, c.Next())) // the former owner is accepted again
		// The new owner finds that an older owner went on, though its install was answered.
		_, err = b.store.Commit(b.Context(), installs[i])
		require.ErrorIs(b, err, fence.ErrReplay)
	}
	require.NoError(b, master.Restart(b.Context()))
	b.await("the killed master is back, as a replica", b.whole)
	// What all replicas have confirmed stays, whichever of them is promoted.
	last := b.position(tile)
	install := follow(tile, 2, last)
	install.Contact, install.Install, install.Replicas = "b:1", true, fence.AllReplicas
	require.Equal(b, 1, b.settle(install).Replicas)
	require.NoError(b, replica.Signal(os.Kill))
	_, err = b.store.Commit(b.Context(), follow(tile, 1, last))
	for err != nil && !errors.Is(err, fence.ErrStale) {
		var refused *fence.RefusedError
		require.NotErrorAs(b, err, &refused)
		_, err = b.store.Commit(b.Context(), follow(tile, 1, last))
	}
	require.ErrorIs(b, err, fence.ErrStale)
	require.NoError(b, replica.Restart(b.Context()))
	b.await("the killed master is back, as a replica", b.whole)
}

// position is where a tile ends.
func (b *breakable) position(tile fence.TileID) fence.Position {
	b.Helper()
	owner, err := b.store.Owner(b.Context(), tile)
	require.NoError(b, err)
	return owner.Position
}

// foundedOn is so many tiles of one master, each with one entry under epoch 1 that is on the replica too.
func (b *breakable) foundedOn(addr string, n int) (founders []fence.Commit) {
	b.Helper()
	for len(founders) < n {
		c := founding(newTile())
		node, err := b.client.MasterForKey(b.Context(), fence.KeysOf(c.Tile).Owner)
		require.NoError(b, err)
		if node.Options().Addr != addr {
			continue
		}
		c.Replicas = fence.AllReplicas
		b.settle(c)
		founders = append(founders, c)
	}
	return founders
}

// sleepers are stores that know one node and nothing of its cluster, each connected to it.
func (b *breakable) sleepers(addr string, n int) []*redisfence.Store {
	b.Helper()
	stores := make([]*redisfence.Store, n)
	for i := range stores {
		client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1,
			ReadTimeout: b.node(addr).Options().ReadTimeout})
		b.Cleanup(func() { _ = client.Close() })
		// Pipelines have connections of their own.
		require.NoError(b, client.Ping(b.Context()).Err())
		_, err := client.Pipelined(b.Context(),
			func(pipe redis.Pipeliner) error { return pipe.Ping(b.Context()).Err() })
		require.NoError(b, err)
		stores[i], err = redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
		require.NoError(b, err)
	}
	return stores
}

// holeOrphan: of a master's two replicas one sleeps while the other is promoted. The cluster lists the sleeper
// under the dead master, so the promoted node seems to have no replica; and when it dies in its turn, the
// sleeper is promoted, with the epoch from before. An install on the promoted node must not count as
// confirmed by all. It leaves the cluster without some of its nodes, so it is the last of its tests.
func holeOrphan(b *breakable) {
	for _, addr := range b.stack.CoordAddrs { // replicas stay where the test puts them
		b.run(b.node(addr), "config", "set", "cluster-allow-replica-migration", "no")
	}
	tile, _ := b.founded()
	master, heir := b.serving(tile)
	founded := b.foundedOn(master.Addr(), 2)
	sleeper := b.adopt(master)
	b.await("the heir knows", func() bool {
		return strings.Count(b.clusterNodes(heir), " "+b.id(b.node(master.Addr()))+" ") == 2
	})
	b.pause(sleeper)
	require.NoError(b, master.Signal(os.Kill))
	b.await("the heir is promoted", func() bool {
		node, err := b.client.MasterForKey(b.Context(), fence.KeysOf(tile).Owner)
		return err == nil && node.Options().Addr == heir.Addr()
	})
	b.await("the sleeper is declared failed", func() bool {
		for line := range strings.Lines(b.clusterNodes(heir)) {
			if strings.Contains(line, sleeper.Addr()+"@") {
				return strings.Contains(line, "fail ") || strings.Contains(line, "fail,")
			}
		}
		return false
	})
	install := func(c fence.Commit) fence.Commit {
		i := follow(c.Tile, 2, c.Next())
		i.Contact, i.Install, i.Replicas = "b:1", true, fence.AllReplicas
		return i
	}
	careless := b.open(&redisfence.Config{IgnoreFailedReplicas: true, AllowNoReplicas: true})
	_, err := careless.Commit(b.Context(), install(founded[0]))
	require.NoError(b, err, "the heir is taken to be alone")
	for range 2 {
		_, err = b.store.Commit(b.Context(), install(founded[1]))
		var unconfirmed *fence.UnconfirmedError
		require.ErrorAs(b, err, &unconfirmed)
		require.Equal(b, 1, unconfirmed.Want)
	}

	require.NoError(b, heir.Signal(os.Kill))
	require.NoError(b, sleeper.Signal(devstack.GoOn))
	b.await("the sleeper is promoted", func() bool {
		node, err := b.client.MasterForKey(b.Context(), fence.KeysOf(tile).Owner)
		return err == nil && node.Options().Addr == sleeper.Addr()
	})
	for _, c := range founded {
		b.settleUnconfirmed(follow(c.Tile, 1, c.Next())) // the former owner is accepted again: the hole is there
	}
}

// adopt makes the replica of another master one of this one's, up to date, and returns it.
func (b *breakable) adopt(master *devstack.Process) *devstack.Process {
	b.Helper()
	id := b.id(b.node(master.Addr()))
	var taken *devstack.Process
	for line := range strings.Lines(b.clusterNodes(master)) {
		f := strings.Fields(line)
		if strings.Contains(f[2], "slave") && f[3] != id {
			addr, _, _ := strings.Cut(f[1], "@")
			taken = b.process(addr)
		}
	}
	require.NotNil(b, taken)
	b.run(b.node(taken.Addr()), "cluster", "replicate", id)
	b.await("the master has two replicas", func() bool {
		info, err := b.node(master.Addr()).Info(b.Context(), "replication").Result()
		return err == nil && len(redislib.AcknowledgedBy(info)) == 2 &&
			strings.Count(b.clusterNodes(master), " "+id+" ") == 2
	})
	return taken
}

func (b *breakable) clusterNodes(p *devstack.Process) string {
	b.Helper()
	nodes, err := b.node(p.Addr()).ClusterNodes(b.Context()).Result()
	require.NoError(b, err)
	return nodes
}

// settleUnconfirmed presents a commit until it is accepted, by any node.
func (b *breakable) settleUnconfirmed(c fence.Commit) {
	b.Helper()
	b.await("accepted", func() bool {
		_, err := b.store.Commit(b.Context(), c)
		var refused *fence.RefusedError
		require.False(b, errors.As(err, &refused), "refused: %v", err)
		return err == nil
	})
}
