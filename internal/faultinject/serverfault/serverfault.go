// Package serverfault breaks the servers of a devstack: it pauses and kills processes, and changes what a Redis Cluster
// holds. The campaign and the battle under chaos break servers by this code alone.
//
// Functions that break something which does not repair itself note the repair in a faultinject.Damage. A server is
// healed when its repair has returned and, for a node of the coordination cluster, [Cluster.Whole] returns nil: every
// slot has a master, and every replica its master's data. A fault before that may be more than a cluster survives.
package serverfault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/faultinject"
)

// Pause stops a process with SIGSTOP; the repair continues it.
func Pause(d *faultinject.Damage, p *devstack.Process) error {
	d.Hit(p.Name(), func(context.Context) error { return p.Signal(devstack.GoOn) })
	return p.Signal(devstack.Pause)
}

// PauseAll stops a process and all its descendants with SIGSTOP; the repair continues them. PostgreSQL serves each
// connection by a process of its own, which goes on if only the first one is paused.
func PauseAll(d *faultinject.Damage, p *devstack.Process) error {
	d.Hit(p.Name(), func(context.Context) error { return p.SignalAll(devstack.GoOn) })
	return p.SignalAll(devstack.Pause)
}

// Kill kills a process with SIGKILL; the repair starts it again.
func Kill(d *faultinject.Damage, p *devstack.Process) error {
	d.Hit(p.Name(), p.Restart)
	return p.Signal(os.Kill)
}

// Cluster is the coordination cluster of a stack, with a client that follows redirections. World is that of the tiles.
type Cluster struct {
	*devstack.Cluster
	Client *redis.ClusterClient
	World  fence.World
}

// Shard is a master with its replicas. Replica is the first of them.
type Shard struct {
	Master, Replica *devstack.Process
	Replicas        []*devstack.Process
}

// Holder finds the process, of some, that is the master for a key.
func Holder(
	ctx context.Context, client *redis.ClusterClient, of []*devstack.Process, key string,
) (*devstack.Process, error) {
	node, err := client.MasterForKey(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("no master holds the key %s: %w", key, err)
	}
	for _, p := range of {
		if p.Addr() == node.Options().Addr {
			return p, nil
		}
	}
	return nil, fmt.Errorf("the master of the key %s, %s, is no process of the stack", key, node.Options().Addr)
}

// MasterOf finds the master of a tile.
func (c *Cluster) MasterOf(ctx context.Context, id fence.TileID) (*devstack.Process, error) {
	return Holder(ctx, c.Client, c.Processes(), c.World.Keys(id).Owner)
}

// ShardOf finds the shard of a tile, as the cluster is now.
func (c *Cluster) ShardOf(ctx context.Context, id fence.TileID) (s Shard, err error) {
	c.Client.ReloadState(ctx)
	if s.Master, err = c.MasterOf(ctx, id); err == nil {
		s.Replicas, err = c.Replicas(ctx, s.Master)
	}
	if err == nil {
		s.Replica = s.Replicas[0]
	}
	return s, err
}

// KillMaster kills a master. The repair waits until a replica has its place, for so long, and starts it again: a master
// that came back before would be the master still, empty, and empty its replicas. It is not for masters with an
// append-only file.
func (c *Cluster) KillMaster(d *faultinject.Damage, s Shard, within time.Duration) error {
	d.Hit(s.Master.Name(), func(ctx context.Context) error {
		if err := c.AwaitPromotion(ctx, s, within); err != nil {
			return err
		}
		return s.Master.Restart(ctx)
	})
	return s.Master.Signal(os.Kill)
}

// AwaitPromotion waits until a replica of a shard serves its slots as a master.
func (c *Cluster) AwaitPromotion(ctx context.Context, s Shard, within time.Duration) error {
	return Await(ctx, within, "a replica of "+s.Master.Name()+" is promoted", func() error {
		var errs []error
		for _, p := range s.Replicas {
			err := c.Promoted(ctx, p)
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// AwaitWhole waits until the cluster is whole.
func (c *Cluster) AwaitWhole(ctx context.Context, within time.Duration) error {
	return Await(ctx, within, "the coordination cluster is whole", func() error { return c.Whole(ctx) })
}

// CutReplication keeps replicas from their masters, by a password that a master does not ask for. The repair takes the
// password away.
func (c *Cluster) CutReplication(ctx context.Context, d *faultinject.Damage, replicas ...*devstack.Process) error {
	var errs []error
	for _, p := range replicas {
		replica := c.Node(p)
		d.Hit(p.Name(), func(ctx context.Context) error { return replica.ConfigSet(ctx, "masterauth", "").Err() })
		errs = append(errs, replica.ConfigSet(ctx, "masterauth", "wrong-password").Err(),
			replica.Do(ctx, "client", "kill", "type", "master").Err())
	}
	return errors.Join(errs...)
}

// DeleteOwners deletes the owner hashes of tiles. Their owners repair that.
func (c *Cluster) DeleteOwners(ctx context.Context, tiles ...fence.TileID) error {
	for _, id := range tiles {
		if err := c.Client.Del(ctx, c.World.Keys(id).Owner).Err(); err != nil {
			return err
		}
	}
	return nil
}

// FlushFunctions removes the functions of every master. The next commit to each loads them again.
func (c *Cluster) FlushFunctions(ctx context.Context) error {
	return c.Client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		return node.FunctionFlush(ctx).Err()
	})
}

// MigrateSlot moves the slot of a tile to another master, key by key, with a pause after each key.
func (c *Cluster) MigrateSlot(ctx context.Context, id fence.TileID, from, to *devstack.Process, pause func()) error {
	source, target := c.Node(from), c.Node(to)
	host, port, err := net.SplitHostPort(to.Addr())
	if err != nil {
		return err
	}
	slot, err := source.ClusterKeySlot(ctx, c.World.Keys(id).Owner).Result()
	if err != nil {
		return err
	}
	sourceID, err1 := source.ClusterMyID(ctx).Result()
	targetID, err2 := target.ClusterMyID(ctx).Result()
	if err := errors.Join(err1, err2,
		target.Do(ctx, "cluster", "setslot", slot, "importing", sourceID).Err(),
		source.Do(ctx, "cluster", "setslot", slot, "migrating", targetID).Err()); err != nil {
		return err
	}
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, int(slot), 10).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			if err := source.Do(ctx, "migrate", host, port, key, 0, 5000).Err(); err != nil {
				return fmt.Errorf("migrate %s: %w", key, err)
			}
			pause()
		}
	}
	masters, err := c.Masters(ctx)
	if err != nil {
		return err
	}
	for _, p := range append([]*devstack.Process{to, from}, masters...) {
		if err := c.Node(p).Do(ctx, "cluster", "setslot", slot, "node", targetID).Err(); err != nil {
			return err
		}
	}
	return nil
}

// askEvery is how often Await asks.
const askEvery = 25 * time.Millisecond

// Await calls check until it returns nil. The error of a check that never did says what it waited for.
func Await(ctx context.Context, within time.Duration, what string, check func() error) error {
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %v: %w", what, within, err)
		}
		time.Sleep(askEvery)
	}
}
