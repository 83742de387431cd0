package redisfence

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/internal/redislib"
)

// topologyReload is how often Options makes a cluster's client look for a changed topology.
const topologyReload = 500 * time.Millisecond

// Options are the client settings a fence depends on, for a cluster at the given addresses: a slot that
// failed over is found again within half a second instead of a minute, and a call ends when its
// context does, so that a node that hangs holds up one tick and not three seconds of them. The client asks
// any node for the new topology, also one that hangs, without a context: a read timeout of a second bounds
// that (with the client's default of three, a paused master was found to be replaced four seconds late).
// Change the rest as you like before giving them to redis.NewClusterClient.
func Options(addresses ...string) *redis.ClusterOptions {
	return &redis.ClusterOptions{Addrs: addresses, ClusterStateReloadInterval: topologyReload,
		ContextTimeoutEnabled: true,
		ReadTimeout:           time.Second}
}

// warnOfSlowReload says that a client notices a failover late. The client's own default is a minute.
func (s *Store) warnOfSlowReload() {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok || c.Options().ClusterStateReloadInterval <= topologyReload {
		return
	}
	s.cfg.Logger.Warn("redisfence: the client reloads the cluster's topology too rarely: after a failover it goes on "+
		"writing to the former master; make it with redisfence.Options, or set ClusterStateReloadInterval",
		"interval", c.Options().ClusterStateReloadInterval, "want", topologyReload)
}

// needs are what the store needs of its servers.
func (s *Store) needs() redislib.Needs {
	n := redislib.Needs{Evicted: "owners and streams", Replicas: s.cfg.MinReplicas}
	if !s.cfg.AllowNoPersistence {
		n.AppendOnly = "a master that restarts before a replica was promoted erases what its replicas have " +
			"confirmed, and a replica may be the next master; set appendonly yes and appendfsync everysec on every node, or " +
			"redisfence.Config.AllowNoPersistence"
	}
	return n
}

// Check implements fence.Checker: what Load checks, and whether each master has Config.MinReplicas connected and can
// write its append-only file. It puts the function library on masters that lack it. Commits go on, whatever it finds.
func (s *Store) Check(ctx context.Context) []error {
	return library.Check(ctx, s.client, s.needs(), &s.checks)
}
