package chaos

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/serverfault"
)

// serverFaults are those that break servers, which this process must have started.
func serverFaults() []Fault {
	return []Fault{
		{faultinject.MasterPaused, pausing(Coordination, aMaster, 5*time.Second)},
		{faultinject.MasterKilled, killMaster(false)},
		{faultinject.OwnerAndMasterKilled, killMaster(true)},
		{faultinject.ReplicaPaused, pausing(Coordination, aReplica, 2*time.Second)},
		{faultinject.ReplicaKilled, killing(Coordination, aReplica, 2*time.Second)},
		{faultinject.AuthorityPaused, pausing(Authority, named("postgres"), 2*time.Second)},
		{faultinject.AuthorityKilled, killing(Authority, named("postgres"), time.Second)},
		{faultinject.FanoutPaused, pausing(Fanout, aFanoutNode, 2*time.Second)},
		{faultinject.ViewsKilled, killing(Relay, named("views"), time.Second)},
		{faultinject.CoordinationLost, killCoordination},
		{faultinject.FunctionsFlushed, flushFunctions},
	}
}

// underWay is for how long after a server's death an answer that it had sent may still be read.
const underWay = 100 * time.Millisecond

// finder picks a server, and says which tiles depend on it.
type finder func(ctx context.Context, r *Runner) (*devstack.Process, []fence.TileID, error)

// pausing stops a server, for up to two seconds more than least, and continues it.
func pausing(system string, find finder, least time.Duration) choose {
	return func(ctx context.Context, r *Runner) (*Injection, error) {
		p, tiles, err := find(ctx, r)
		if err != nil {
			return nil, err
		}
		var d faultinject.Damage
		return &Injection{System: system, Node: p.Name(), Tiles: tiles, Settles: underWay, Delivery: system == Fanout,
			Lasts:  r.between(least, least+2*time.Second),
			Inject: func(context.Context) error { return serverfault.PauseAll(&d, p) },
			Repair: func(ctx context.Context) error { return errors.Join(d.Repair(ctx), r.whole(ctx, system)) },
		}, nil
	}
}

// killing kills a server and starts it again after a time.
func killing(system string, find finder, lasts time.Duration) choose {
	return func(ctx context.Context, r *Runner) (*Injection, error) {
		p, tiles, err := find(ctx, r)
		if err != nil {
			return nil, err
		}
		var d faultinject.Damage
		return &Injection{System: system, Node: p.Name(), Tiles: tiles, Settles: underWay, Lasts: lasts,
			Inject: func(context.Context) error { return serverfault.Kill(&d, p) },
			Repair: func(ctx context.Context) error { return errors.Join(d.Repair(ctx), r.whole(ctx, system)) },
		}, nil
	}
}

// killMaster kills a master, with the owner of one of its tiles or without, and starts both again when their tiles have
// recovered, by a replica that was promoted.
func killMaster(owner bool) choose {
	return func(ctx context.Context, r *Runner) (*Injection, error) {
		p, tiles, err := aMaster(ctx, r)
		if err != nil {
			return nil, err
		}
		h := r.Owner(tiles[0])
		if owner && h == nil {
			return nil, ErrNotNow
		}
		c := r.Servers.cluster()
		s, err := c.ShardOf(ctx, tiles[0])
		if err != nil {
			c.Close()
			return nil, err
		}
		var d faultinject.Damage
		i := &Injection{System: Coordination, Node: p.Name(), Tiles: tiles, Settles: underWay, Lasts: patience,
			UntilWell: true, Inject: func(context.Context) error { return c.KillMaster(&d, s, repairing) },
			Repair: func(ctx context.Context) error {
				defer c.Close()
				return errors.Join(d.Repair(ctx), r.whole(ctx, Coordination))
			}}
		if owner {
			i.with(r, h)
		}
		return i, nil
	}
}

// with has the injection kill a host too, before all else. The server is started again before the tiles are well: an
// owner begins only when a replica has confirmed its epoch, and the one that was promoted may have none.
func (i *Injection) with(r *Runner, h Host) {
	i.Host, i.UntilWell, i.Lasts = h, false, r.between(2*time.Second, 4*time.Second)
	for _, id := range r.served(h) {
		if !slices.Contains(i.Tiles, id) {
			i.Tiles = append(i.Tiles, id)
		}
	}
	inject, repair := i.Inject, i.Repair
	i.Inject = func(ctx context.Context) error {
		r.Kill(h)
		return inject(ctx)
	}
	i.Repair = func(ctx context.Context) error { return errors.Join(repair(ctx), r.Restart(h)) }
}

// heldBy lists the tiles of which a process holds the key, and picks the process by one of them.
func (r *Runner) heldBy(hold func(fence.TileID) (*devstack.Process, error)) (*devstack.Process, []fence.TileID, error) {
	p, err := hold(r.Tiles[r.rng.IntN(len(r.Tiles))])
	if err != nil {
		return nil, nil, err
	}
	return p, slices.DeleteFunc(slices.Clone(r.Tiles), func(id fence.TileID) bool {
		other, err := hold(id)
		return err != nil || other != p
	}), nil
}

func aMaster(ctx context.Context, r *Runner) (*devstack.Process, []fence.TileID, error) {
	c := r.Servers.cluster()
	defer c.Close()
	return r.heldBy(func(id fence.TileID) (*devstack.Process, error) { return c.MasterOf(ctx, id) })
}

func aFanoutNode(ctx context.Context, r *Runner) (*devstack.Process, []fence.TileID, error) {
	nodes := r.nodes(Fanout)
	p, tiles, err := r.heldBy(func(id fence.TileID) (*devstack.Process, error) {
		return serverfault.Holder(ctx, r.Servers.Fanout, nodes, r.Servers.World.Channel(id))
	})
	watched := r.watched()
	return p, slices.DeleteFunc(tiles, func(id fence.TileID) bool { return !slices.Contains(watched, id) }), err
}

// aReplica picks a replica; the tiles are its master's.
func aReplica(ctx context.Context, r *Runner) (*devstack.Process, []fence.TileID, error) {
	master, tiles, err := aMaster(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	c := r.Servers.cluster()
	defer c.Close()
	replicas, err := c.Replicas(ctx, master)
	if err != nil {
		return nil, nil, err
	}
	return replicas[0], tiles, nil
}

// named picks a server that is on the path of no tick, by its name.
func named(name string) finder {
	return func(_ context.Context, r *Runner) (*devstack.Process, []fence.TileID, error) {
		if p, ok := r.Servers.Stack.Process(name); ok {
			return p, nil, nil
		}
		return nil, nil, ErrNotNow
	}
}

// killCoordination kills every node at once. They come back empty.
var killCoordination = on(Coordination, func(r *Runner) Injection {
	return Injection{Tiles: r.Tiles, Lasts: time.Second, Settles: underWay,
		Inject: func(context.Context) error {
			var errs []error
			for _, p := range r.nodes(Coordination) {
				errs = append(errs, p.Signal(os.Kill))
			}
			return errors.Join(errs...)
		},
		Repair: func(ctx context.Context) error {
			var all errgroup.Group
			for _, p := range r.nodes(Coordination) {
				all.Go(func() error { return p.Restart(ctx) })
			}
			return errors.Join(all.Wait(), r.whole(ctx, Coordination))
		}}
})

var flushFunctions = on(Coordination, func(r *Runner) Injection {
	return Injection{Tiles: r.Tiles, Inject: func(ctx context.Context) error {
		c := r.Servers.cluster()
		defer c.Close()
		return c.FlushFunctions(ctx)
	}}
})

// whole waits until the coordination cluster is as it was. Other systems are whole at once.
func (r *Runner) whole(ctx context.Context, system string) error {
	if system != Coordination {
		return nil
	}
	c := r.Servers.cluster()
	defer c.Close()
	return c.AwaitWhole(ctx, repairing)
}

// throttled is the fault that DynamoDB refuses all requests for a while. The ledger and the checkpointer go on
// afterwards: it is over when the ledger answers, and each snapshot that the stream holds by then is a checkpoint.
func throttled() Fault {
	return Fault{faultinject.DurableThrottled, on(Durable, func(r *Runner) Injection {
		t, before, began := r.Throttle, int64(0), time.Time{}
		var back time.Duration
		return Injection{Lasts: r.between(2*time.Second, 4*time.Second),
			Inject: Always(func() {
				began, before = time.Now(), t.Refused.Load()
				t.Share.Store(1000)
			}),
			Repair: func(ctx context.Context) error {
				err := Until(ctx, "DynamoDB is asked", func() bool { return t.Refused.Load() > before })
				t.Share.Store(0)
				err = errors.Join(err, r.caughtUp(ctx))
				back = time.Since(began)
				return err
			},
			Recovered: func() time.Duration { return back }}
	})}
}

// caughtUp waits until the ledger answers and the durable store has the snapshots that there are now.
func (r *Runner) caughtUp(ctx context.Context) error {
	err := Until(ctx, "the ledger answers", func() bool {
		_, err := r.Backends.Ledger.Balance(ctx, "chaos", "chaos") // an account that there need not be
		return err == nil
	})
	for _, id := range r.Tiles {
		if err != nil {
			return err
		}
		var latest fence.Snapshot
		var found bool
		if latest, found, err = r.Backends.Log.Snapshot(ctx, id); err == nil && found {
			err = Until(ctx, "the latest snapshot of tile "+id.String()+" is a checkpoint", func() bool {
				stored, found, err := r.Backends.Durable.Get(ctx, id)
				return err == nil && found && !checkpoint.Supersedes(latest.Position, stored.Position)
			})
		}
	}
	return err
}
