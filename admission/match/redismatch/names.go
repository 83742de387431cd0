package redismatch

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/internal/redislib"
)

// Names lists, sorted, the shards of all queues that have had a ticket ("ranked-eu/0"), and the pools of seats whose
// tiles have offered some and not withdrawn them. It is for tools: it scans the keys of every master. Errors: a
// *fence.StoreError.
func (s *Store) Names(ctx context.Context) (shards, pools []string, err error) {
	var mu sync.Mutex
	scan := func(ctx context.Context, node *redis.Client) error {
		for _, kind := range []struct {
			before, after string
			names         *[]string
		}{{"{match:", "}:meta", &shards}, {"{seats:", "}:until", &pools}} {
			keys := node.Scan(ctx, 0, s.cfg.World.Key(kind.before)+"*"+kind.after, 1000).Iterator()
			for keys.Next(ctx) {
				name := strings.TrimSuffix(strings.TrimPrefix(keys.Val(), s.cfg.World.Key(kind.before)), kind.after)
				mu.Lock()
				*kind.names = append(*kind.names, name)
				mu.Unlock()
			}
			if err := keys.Err(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := redislib.EachMaster(ctx, s.client, scan); err != nil {
		return nil, nil, failed("scan", err)
	}
	slices.Sort(shards)
	slices.Sort(pools)
	return slices.Compact(shards), slices.Compact(pools), nil // a key may be found twice
}
