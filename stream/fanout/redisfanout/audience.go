package redisfanout

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
)

// audienceBatch is how many channels one PUBSUB SHARDNUMSUB asks for.
const audienceBatch = 1000

// Audience implements fanout.Audience: PUBSUB SHARDNUMSUB on each node that serves one of the tiles, all nodes at once.
// A process counts once for each tile, whatever its subscriptions. The error is a *fence.StoreError.
func (f *Fanout) Audience(ctx context.Context, tiles []fence.TileID) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.tuning.Timeout)
	defer cancel()
	byNode := map[*redis.Client][]int{}
	channels := make([]string, len(tiles))
	for i, t := range tiles {
		channels[i] = f.channel(t)
		node, err := f.nodes.master(ctx, channels[i])
		if err != nil {
			return nil, &fence.StoreError{Op: "count subscribers", Tile: t, Outcome: fence.ErrNotApplied, Err: err}
		}
		byNode[node] = append(byNode[node], i)
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	counts := make([]int, len(tiles))
	for node, of := range byNode {
		wg.Go(func() {
			if err := countOn(ctx, node, channels, of, counts); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = &fence.StoreError{Op: "count subscribers", Tile: tiles[of[0]], Outcome: fence.ErrNotApplied,
					Err: err}
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return nil, failed
	}
	return counts, nil
}

// countOn asks one node for the subscribers of some of the channels.
func countOn(ctx context.Context, node *redis.Client, channels []string, of, counts []int) error {
	for len(of) > 0 {
		part := of[:min(len(of), audienceBatch)]
		of = of[len(part):]
		names := make([]string, len(part))
		for k, i := range part {
			names[k] = channels[i]
		}
		found, err := node.PubSubShardNumSub(ctx, names...).Result()
		if err != nil {
			return err
		}
		for k, i := range part {
			counts[i] = int(found[names[k]])
		}
	}
	return nil
}
