//go:build unix

package campaign

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/faultinject/serverfault"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// cluster is the coordination cluster, for the faults.
type cluster struct{ serverfault.Cluster }

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

// drawTiles draws tiles of which every master has as many, and sorts them.
func (c *cluster) drawTiles(ctx context.Context, rng *rand.Rand) ([]fence.TileID, error) {
	c.Client.ReloadState(ctx)
	have := map[*devstack.Process]int{}
	var tiles []fence.TileID
	for len(tiles) < tileCount {
		// Each class of tiles comes in turn, and among them those that keep little; see configure.
		id := fence.TileID(rng.Uint64()>>1&^15 | 1 | uint64(len(tiles)%4)<<1 | uint64(min(1, len(tiles)%3))<<3)
		master, err := c.MasterOf(ctx, id)
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
