package redisfence

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Options are the client settings a fence depends on, for a cluster at the given addresses: a slot that
// failed over is found again within half a second instead of half a minute, and a call ends when its
// context does, so that a node that hangs holds up one tick and not three seconds of them. The client asks
// any node for the new topology, also one that hangs, without a context: a read timeout of a second bounds
// that (with the client's default of three, a paused master was found to be replaced four seconds late).
// Change the rest as you like before giving them to redis.NewClusterClient.
func Options(addresses ...string) *redis.ClusterOptions {
	return &redis.ClusterOptions{Addrs: addresses, ClusterStateReloadInterval: 500 * time.Millisecond, ContextTimeoutEnabled: true,
		ReadTimeout: time.Second}
}
