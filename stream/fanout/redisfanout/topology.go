package redisfanout

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/redislib"
)

// topology finds the node that serves a channel.
type topology struct {
	client redis.UniversalClient
	every  time.Duration

	mu    sync.Mutex
	asked time.Time // when the slot table was last asked for
}

func newTopology(client redis.UniversalClient, every time.Duration) (*topology, error) {
	if err := redislib.Usable(client); err != nil {
		return nil, err
	}
	var obeys bool
	switch c := client.(type) {
	case *redis.ClusterClient:
		obeys = c.Options().ContextTimeoutEnabled
		if err := redisfence.CheckAddresses(c.Options().Addrs); err != nil && c.Options().ClusterSlots == nil {
			return nil, err
		}
	case *redis.Client:
		obeys = c.Options().ContextTimeoutEnabled
	}
	if !obeys {
		return nil, &fence.ArgumentError{Field: "client", Value: "ContextTimeoutEnabled: false",
			Want: "a client that obeys deadlines: a node that hangs would delay all others (redisfanout.Options)"}
	}
	return &topology{client: client, every: every}, nil
}

// master returns the client of the node that serves channel, as far as is known. It does I/O only if the
// slot table was never read.
func (t *topology) master(ctx context.Context, channel string) (*redis.Client, error) {
	return redislib.Master(ctx, t.client, channel)
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
	if c, ok := t.client.(*redis.ClusterClient); ok {
		c.ReloadState(ctx)
	}
}
