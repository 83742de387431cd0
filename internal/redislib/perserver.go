package redislib

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// PerServer keeps something for each server that a client has met, such as a queue: what waits for one server then does
// not hold up what is for another. The zero value is ready; it is safe for concurrent use.
type PerServer[T any] struct {
	mu sync.RWMutex
	of map[*redis.Client]*T
}

// maxServers is how many servers are remembered; a cluster has at most about a thousand nodes.
const maxServers = 2048

// Of returns what is kept for the master of a key, as far as a usable client knows. At the first call for a server,
// create makes it.
func (p *PerServer[T]) Of(
	ctx context.Context, client redis.UniversalClient, key string, create func(*redis.Client) *T,
) (*T, error) {
	server, err := Master(ctx, client, key)
	if err != nil {
		return nil, err
	}
	p.mu.RLock()
	kept := p.of[server]
	p.mu.RUnlock()
	if kept != nil {
		return kept, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if kept = p.of[server]; kept != nil {
		return kept, nil
	}
	if p.of == nil || len(p.of) >= maxServers {
		// Servers that have left the cluster are forgotten with the others; those are met again.
		p.of = map[*redis.Client]*T{}
	}
	kept = create(server)
	p.of[server] = kept
	return kept, nil
}
