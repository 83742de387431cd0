package redisfanout

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
)

// topology finds the node that serves a channel.
type topology struct {
	cluster *redis.ClusterClient // nil for a single server
	single  *redis.Client
	every   time.Duration

	mu    sync.Mutex
	asked time.Time // when the slot table was last asked for
}

func newTopology(client redis.UniversalClient, every time.Duration) (*topology, error) {
	t := &topology{every: every}
	var obeys bool
	switch c := client.(type) {
	case *redis.ClusterClient:
		if c != nil {
			t.cluster, obeys = c, c.Options().ContextTimeoutEnabled
		}
	case *redis.Client:
		if c != nil {
			t.single, obeys = c, c.Options().ContextTimeoutEnabled
		}
	}
	if t.cluster == nil && t.single == nil {
		return nil, &fence.ArgumentError{Field: "client", Value: fmt.Sprintf("%T", client),
			Want: "a *redis.ClusterClient or a *redis.Client"}
	}
	if t.cluster != nil && t.cluster.Options().ClusterSlots == nil {
		if err := redisfence.CheckAddresses(t.cluster.Options().Addrs); err != nil {
			return nil, err
		}
	}
	if !obeys {
		return nil, &fence.ArgumentError{Field: "client", Value: "ContextTimeoutEnabled: false",
			Want: "a client that obeys deadlines: a node that hangs would delay all others (redisfanout.Options)"}
	}
	return t, nil
}

// master returns the client of the node that serves channel, as far as is known. It does I/O only if the
// slot table was never read.
func (t *topology) master(ctx context.Context, channel string) (*redis.Client, error) {
	if t.cluster == nil {
		return t.single, nil
	}
	return t.cluster.MasterForKey(ctx, channel)
}

// refresh has the slot table read in the background if that was not done lately.
func (t *topology) refresh(ctx context.Context) {
	t.mu.Lock()
	due := time.Since(t.asked) >= t.every
	t.mu.Unlock()
	if due {
		t.reload(ctx)
	}
}

// reload has the slot table read in the background: something was not where it should be.
func (t *topology) reload(ctx context.Context) {
	t.mu.Lock()
	t.asked = time.Now()
	t.mu.Unlock()
	if t.cluster != nil {
		t.cluster.ReloadState(ctx)
	}
}
