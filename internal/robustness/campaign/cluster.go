package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// cluster is the coordination cluster, for the faults.
type cluster struct {
	*devstack.Cluster
	client *redis.ClusterClient
}

func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}

// masterNames are the addresses of the nodes that serve slots, in order.
func (c *cluster) masterNames(ctx context.Context) (names []string, err error) {
	masters, err := c.Masters(ctx)
	for _, m := range masters {
		names = append(names, m.Addr())
	}
	slices.Sort(names)
	return names, err
}

// watchMasters returns what records a failover that the fault did not ask for, if there has been one: on a machine that
// is short of processors a master may be replaced because it answers late, and then the store is not one copy.
func (r *run) watchMasters(ctx context.Context) (unasked func() error, err error) {
	before, err := r.cluster.masterNames(ctx)
	return func() error {
		after, err := r.cluster.masterNames(ctx)
		if err == nil && !slices.Equal(before, after) && !r.Fault.failover {
			r.Target += " (a master was replaced, unasked)"
			r.recorder.Fault(history.FaultInfo{Name: "unasked failover", Failover: true, Over: true})
		}
		return err
	}, err
}

// awaitHealthy waits until the cluster is whole.
func (c *cluster) awaitHealthy(ctx context.Context, within time.Duration) error {
	return await(ctx, within, "the coordination cluster", func() error { return c.Whole(ctx) })
}

// await calls check until it returns nil; the error of a check that never did says what was waited for.
func await(ctx context.Context, within time.Duration, what string, check func() error) error {
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %v: %w", what, within, err)
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// shard is a master with its replicas. replica is the first of them.
type shard struct {
	master, replica *devstack.Process
	replicas        []*devstack.Process
}

// shardOf finds the shard of a tile.
func (c *cluster) shardOf(ctx context.Context, id fence.TileID) (s shard, err error) {
	c.client.ReloadState(ctx)
	if s.master, err = c.masterOf(ctx, id); err == nil {
		s.replicas, err = c.Replicas(ctx, s.master)
	}
	if err == nil {
		s.replica = s.replicas[0]
	}
	return s, err
}

// masterOf finds the master of a tile.
func (c *cluster) masterOf(ctx context.Context, id fence.TileID) (*devstack.Process, error) {
	node, err := c.client.MasterForKey(ctx, fence.KeysOf(id).Owner)
	for _, p := range c.Processes() {
		if err == nil && p.Addr() == node.Options().Addr {
			return p, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("tile %s has no master", id), err)
}

// awaitPromotion waits until a replica of a shard serves its slots as a master.
func (c *cluster) awaitPromotion(ctx context.Context, s shard) error {
	return await(ctx, promotionTime, "a replica of "+s.master.Name()+" is promoted", func() error {
		var errs []error
		for _, p := range s.replicas {
			err := c.Promoted(ctx, p)
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// drawTiles draws tiles of which every master has as many, and sorts them.
func (c *cluster) drawTiles(ctx context.Context, rng *rand.Rand) ([]fence.TileID, error) {
	c.client.ReloadState(ctx)
	have := map[*devstack.Process]int{}
	var tiles []fence.TileID
	for len(tiles) < tileCount {
		// Each class of tiles comes in turn, and among them those that keep little; see configure.
		id := fence.TileID(rng.Uint64()>>1&^15 | 1 | uint64(len(tiles)%4)<<1 | uint64(min(1, len(tiles)%3))<<3)
		master, err := c.masterOf(ctx, id)
		if err != nil {
			return nil, err
		}
		if have[master] < tileCount/3 {
			have[master]++
			tiles = append(tiles, id)
		}
	}
	slices.Sort(tiles)
	return tiles, nil
}
