//go:build unix

package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/serverfault"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// processFaults stop workers, for a while or for good.
func processFaults() []*Fault {
	return []*Fault{
		{Name: faultinject.OwnerPaused.Name,
			About: "SIGSTOP of a worker with tiles, SIGCONT after others have taken them over",
			hold:  seconds(1.5, 4), within: "zombie-master",
			inject: func(_ context.Context, r *run, v victim) error {
				r.orphans = r.supervisor.of(v.owner)
				return r.pause(v.owner.proc)
			}},
		{Name: "owner-stopped",
			About: "SIGTERM of a worker with tiles: it hands them over, and another takes its place",
			hold:  seconds(0.5, 1.5),
			inject: func(_ context.Context, r *run, v victim) error {
				r.damage.Hit(v.owner.name, func(ctx context.Context) error { return r.startWorker(ctx, v.owner) })
				return v.owner.proc.Signal(syscall.SIGTERM)
			}},
		{Name: faultinject.OwnerKilled.Name, About: "SIGKILL of a worker with tiles", within: "many-owners-killed",
			hold:   seconds(2, 3),
			inject: func(_ context.Context, r *run, v victim) error { return r.killWorker(v.owner) }},
		{Name: "many-owners-killed", About: "SIGKILL of all workers but one, at once", hold: seconds(2, 3),
			inject: func(_ context.Context, r *run, _ victim) (err error) {
				spared := r.rng.IntN(len(r.workers))
				for i, w := range r.workers {
					if i != spared {
						err = errors.Join(err, r.killWorker(w))
					}
				}
				return err
			}},
	}
}

// serverFaults stop processes of Redis and PostgreSQL, some with a worker.
func serverFaults() []*Fault {
	return []*Fault{
		{Name: faultinject.MasterPaused.Name,
			About: "SIGSTOP of a Redis master, sometimes for too short a time for a failover",
			hold:  seconds(0.3, 5), failover: true, within: "zombie-master",
			inject: func(_ context.Context, r *run, v victim) error { return r.pause(v.Master) }},
		{Name: faultinject.MasterKilled.Name,
			About: "SIGKILL of a Redis master; it comes back empty after its replica was promoted",
			hold:  seconds(1, 2), failover: true, within: "fence-moved-back",
			inject: func(_ context.Context, r *run, v victim) error { return r.killMaster(v.Shard) }},
		{Name: "master-restarted",
			About: "SIGKILL of a Redis master with an append-only file, which is back before its replica is " +
				"promoted; in half of the runs a tile's owner is killed with it",
			hold: seconds(0.5, 1.5), appendOnly: true, inject: restartMaster},
		{Name: "only-copy-lost",
			About: "a Redis master is killed, then its promoted replica and a tile's owner: an operator promotes the " +
				"old master, which has what its append-only file has, and the only copy of what came later is lost",
			hold: seconds(0.1, 0.5), failover: true, appendOnly: true, inject: loseOnlyCopy},
		{Name: "tail-lost",
			About: "the replication link is cut, and then the master killed: the owner lives, and has what was lost",
			hold:  seconds(0.5, 1.5), failover: true, within: "fence-moved-back",
			inject: loseLongTail},
		{Name: "tail-and-owner-lost",
			About: "the replication link is cut, and then the master and a tile's owner killed",
			hold:  seconds(0.5, 1.5), failover: true,
			inject: func(ctx context.Context, r *run, v victim) error {
				return errors.Join(r.loseTail(ctx, v.Shard), r.killWorker(v.owner))
			}},
		{Name: "owner-and-master-killed", About: "SIGKILL of a Redis master and of the worker that owns a tile there",
			hold: seconds(1, 2), failover: true, within: "tail-and-owner-lost",
			inject: func(_ context.Context, r *run, v victim) error {
				return errors.Join(r.killMaster(v.Shard), r.killWorker(v.owner))
			}},
		{Name: faultinject.ReplicaPaused.Name,
			About: "SIGSTOP of a Redis replica: installs wait for it until it is back, everything else goes on",
			hold:  seconds(1, 4), moves: true, within: faultinject.ReplicaKilled.Name,
			inject: func(_ context.Context, r *run, v victim) error { return r.pause(v.Replica) }},
		{Name: faultinject.ReplicaKilled.Name, About: "SIGKILL of a Redis replica", hold: seconds(1, 3), moves: true,
			inject: func(_ context.Context, r *run, v victim) error { return r.kill(v.Replica) }},
		{Name: faultinject.AuthorityPaused.Name,
			About: "SIGSTOP of PostgreSQL and all its processes while tiles are to move",
			hold:  seconds(1, 4), moves: true, within: "owner-without-authority",
			inject: func(_ context.Context, r *run, _ victim) error {
				return serverfault.PauseAll(&r.damage, r.postgres())
			}},
		{Name: faultinject.AuthorityKilled.Name,
			About: "SIGKILL of PostgreSQL while tiles are to move; it recovers from its log",
			hold:  seconds(1, 3), moves: true,
			inject: func(_ context.Context, r *run, _ victim) error { return r.kill(r.postgres()) }},
		{Name: "zombie-master",
			About: "a master and an owner are paused with a commit between them; others take over on the promoted replica; then both wake",
			hold:  seconds(0.1, 0.5), failover: true, alone: true, inject: zombieMaster},
		{Name: "fence-moved-back",
			About: "the replication link is cut, a successor installs on the master alone, and the master is killed: the replica knows only the old owner",
			hold:  seconds(0.5, 1.5), failover: true, inject: fenceMovedBack},
		{Name: "epoch-granted-twice",
			About: "a claimant installs on a master alone, which is killed, and the authority's row is restored: another claimant is granted the same epoch and serves; then the first one presents its install again",
			hold:  seconds(0.1, 0.5), failover: true, alone: true, staged: true, inject: grantTwice},
	}
}

func (r *run) pause(p *devstack.Process) error { return serverfault.Pause(&r.damage, p) }

func (r *run) kill(p *devstack.Process) error { return serverfault.Kill(&r.damage, p) }

// killWorker kills a worker; the repair starts another at the same contact.
func (r *run) killWorker(w *workerSlot) error {
	r.orphans = append(r.orphans, r.supervisor.of(w)...)
	r.damage.Hit(w.name, func(ctx context.Context) error { return r.startWorker(ctx, w) })
	return w.proc.Signal(os.Kill)
}

// killMaster kills a master; the repair restarts it once its replica has its place.
func (r *run) killMaster(s serverfault.Shard) error {
	return r.cluster.KillMaster(&r.damage, s, promotionTime)
}

// loseLongTail loses the tail of a tile that runs ahead of its replicas and keeps it: most is lost, and appended again.
func loseLongTail(ctx context.Context, r *run, _ victim) error {
	i := slices.IndexFunc(r.tiles,
		func(id fence.TileID) bool { return classOf(id) == tile.Checkpointed && !keepsLittle(id) })
	s, err := r.cluster.ShardOf(ctx, r.tiles[max(i, 0)])
	if err != nil {
		return err
	}
	return r.loseTail(ctx, s)
}

// restartMaster does what a supervisor does that restarts what has ended at once. The node returns well within the node
// timeout, so it stays the master, and its replica takes over what it has.
func restartMaster(ctx context.Context, r *run, v victim) error {
	r.damage.Hit(v.Master.Name(), nil)
	err := v.Master.Signal(os.Kill)
	if r.rng.IntN(2) == 0 {
		err = errors.Join(err, r.killWorker(v.owner))
	}
	time.Sleep(150 * time.Millisecond)
	return errors.Join(err, v.Master.Restart(context.WithoutCancel(ctx)))
}

// loseOnlyCopy is the case of a promoted master that dies before it has a replica. What it took is lost with it, so it
// must not have confirmed any of it.
func loseOnlyCopy(ctx context.Context, r *run, v victim) error {
	r.damage.Hit(v.Master.Name()+" "+v.Replica.Name(),
		func(ctx context.Context) error { return r.promoteAgain(ctx, v.Shard) })
	err := errors.Join(v.Master.Signal(os.Kill), r.cluster.AwaitPromotion(ctx, v.Shard, promotionTime))
	if err != nil {
		return err
	}
	time.Sleep(700*time.Millisecond + time.Duration(r.rng.Int64N(int64(700*time.Millisecond))))
	return errors.Join(v.Replica.Signal(os.Kill), r.killWorker(r.owner(v.tile)))
}

// promoteAgain restarts both nodes of a shard, of which the replica was the last master, and gives the master its place
// back. The master follows its former replica as soon as it has heard of that one's promotion, and keeps what it has.
func (r *run) promoteAgain(ctx context.Context, s serverfault.Shard) error {
	if err := s.Master.Restart(ctx); err != nil {
		return err
	}
	err := serverfault.Await(ctx, promotionTime, s.Master.Name()+" takes its place back", func() error {
		return r.cluster.Node(s.Master).Do(ctx, "cluster", "failover", "takeover").Err()
	})
	return errors.Join(err, s.Replica.Restart(ctx))
}

// zombieMaster is the case of a master that sleeps through its own replacement and answers, when it wakes,
// to what waited in its socket: an acknowledgement of nothing.
func zombieMaster(ctx context.Context, r *run, v victim) error {
	if err := r.pause(v.Master); err != nil {
		return err
	}
	// Long enough for the next tick's commit to be on its way, not for the owner to look elsewhere.
	time.Sleep(tick + time.Duration(r.rng.Int64N(int64(tick))))
	if err := r.pause(v.owner.proc); err != nil {
		return err
	}
	if err := r.cluster.AwaitPromotion(ctx, v.Shard, promotionTime); err != nil {
		return err
	}
	return serverfault.Await(ctx, r.cfg.ServeWithin, "others serve the tiles of the paused owner", r.supervisor.serving)
}

// fenceMovedBack is the case of a replica that is promoted without the newest epoch.
func fenceMovedBack(ctx context.Context, r *run, v victim) error {
	err := r.cutLink(ctx, v.Shard)
	if to := r.otherWorker(v.owner); to != nil && err == nil {
		_ = r.supervisor.order(ctx, v.tile, to) // the successor; it cannot be confirmed, and must not serve
	}
	time.Sleep(300*time.Millisecond + time.Duration(r.rng.Int64N(int64(700*time.Millisecond))))
	return errors.Join(err, r.killMaster(v.Shard))
}

// grantTwice is the case of two claimants of one epoch: the copy of the store and the row of the authority that knew
// the first are both lost. Of their installs, which name their claims, the store takes one.
func grantTwice(ctx context.Context, r *run, v victim) error {
	const early = "early claimant"
	// Nothing is committed meanwhile, so that the install follows the last batch.
	err := errors.Join(r.cutLink(ctx, v.Shard), r.pause(v.owner.proc))
	row, err1 := r.Authority.Lookup(ctx, v.tile)
	last, err2 := r.Log.Last(ctx, v.tile)
	if err := errors.Join(err, err1, err2); err != nil {
		return err
	}
	contact := campaignHost + ":1"
	g, err := r.recorder.Authority(early, r.Authority).Promote(ctx, fence.Claim{Tile: v.tile, Contact: contact,
		ID: fence.NewClaimID(), Expected: row.Epoch})
	if err != nil {
		return err
	}
	_, claim, err := (&stream.Batch{Claim: g.ID}).Encode()
	if err != nil {
		return err
	}
	present := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		_, err := r.recorder.Store(early, r.Store).Commit(ctx, fence.Commit{Tile: v.tile, Epoch: g.Epoch,
			Contact: contact, Prev: last, Tick: 1, Private: claim, Install: true, Replicas: fence.AllReplicas})
		return err
	}
	_ = present(2 * tick) // no replica confirms it
	err = errors.Join(r.killMaster(v.Shard), r.putBack(ctx, v.tile, history.GrantOf(row)),
		v.owner.proc.Signal(devstack.GoOn), r.cluster.AwaitPromotion(ctx, v.Shard, promotionTime))
	if err != nil {
		return err
	}
	if now, err := r.Authority.Lookup(ctx, v.tile); err == nil && now.Epoch == row.Epoch {
		_ = r.supervisor.order(ctx, v.tile, r.otherWorker(v.owner)) // another look shows whether it arrived
	}
	return errors.Join(serverfault.Await(ctx, r.cfg.ServeWithin, "another claimant serves", r.supervisor.serving),
		serverfault.Await(ctx, r.cfg.ServeWithin, "the first claimant is refused", func() error {
			r.cluster.Client.ReloadState(ctx)
			err := present(time.Second)
			if _, refused := errors.AsType[*fence.RefusedError](err); refused {
				return nil
			}
			return fmt.Errorf("it was answered %w", cmp.Or(err, errors.New("that it is the owner")))
		}))
}
