package redisfence_test

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
)

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
	require.NoError(b, sleeper.Signal(syscall.SIGCONT))
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
		return err == nil && strings.Count(info, "state=online") == 2 &&
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
