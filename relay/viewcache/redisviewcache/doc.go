// Package redisviewcache keeps the views of package viewcache on a Redis 7 of their own, a single server or a cluster.
//
//	client := redis.NewClient(redisviewcache.Options("10.0.0.9:6379"))
//	store, err := redisviewcache.New(client, fence.World{}, 0)
//	defer store.Close()
//	views, err := viewcache.New(store, log, [][]byte{key}, nil) // the same for all relays
//	r, err := relay.New(broker, log, relay.Public, &relay.Config{Views: views})
//
// The tiles are divided into 16 groups. The keys of a group share a hash tag, so that one function can
// compare, store, evict and announce in one step on one slot; a version is a field named for its position. The
// functions are loaded where they are missing, which any relay does at any time.
//
// The server needs no persistence and no replicas: what it loses is read again. Set its maxmemory to one and a half
// times the budget of New and leave maxmemory-policy at noeviction; the functions keep to the budget by themselves. If
// the server evicts all the same, a group that has lost one of its keys begins anew. Give it nothing else to do, and
// never the coordination cluster: a storm of joins must not reach the servers that commits wait for.
//
// A Store is safe for concurrent use. Test against it as its own tests do, or use viewcache.NewMemory, which passes the
// same suite.
package redisviewcache

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options returns options of a client of a single server that suit the views: calls are not repeated, and obey the
// deadlines that viewcache sets. Change what you need, such as credentials and TLS.
func Options(addr string) *redis.Options { return options(addr).Simple() }

// ClusterOptions returns the same for a cluster that is known by some of its nodes. The slot table is read again every
// half a second, so that a failed master is soon not asked any more.
func ClusterOptions(addrs ...string) *redis.ClusterOptions {
	o := options(addrs...).Cluster()
	o.ClusterStateReloadInterval = 500 * time.Millisecond
	return o
}

func options(addrs ...string) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs:                    addrs,
		ContextTimeoutEnabled:    true,
		MaxRetries:               -1,
		MaxRedirects:             3,
		DialTimeout:              time.Second,
		DialerRetries:            1,
		ReadTimeout:              time.Second,
		WriteTimeout:             time.Second,
		PoolSize:                 32,
		MinIdleConns:             2, // the first calls of a storm do not wait for a connection
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}
