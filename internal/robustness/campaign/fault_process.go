package campaign

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/tilefence/tilefence/internal/devstack"
)

// processFaults stop processes, for a while or for good.
func processFaults() []*Fault {
	return []*Fault{
		{Name: "owner-paused", About: "SIGSTOP of a worker with tiles, SIGCONT after others have taken them over",
			hold: seconds(1.5, 4),
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				w := r.owner(r.tile())
				r.orphans = r.supervisor.of(w)
				return pause(w.proc)
			}},
		{Name: "owner-killed", About: "SIGKILL of a worker with tiles", hold: seconds(2, 3),
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				return r.killWorkers(r.owner(r.tile()))
			}},
		{Name: "many-owners-killed", About: "SIGKILL of all workers but one, at once", hold: seconds(2, 3),
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				spared := r.rng.IntN(len(r.workers))
				var victims []*workerSlot
				for i, w := range r.workers {
					if i != spared {
						victims = append(victims, w)
					}
				}
				return r.killWorkers(victims...)
			}},
		{Name: "master-paused", About: "SIGSTOP of a Redis master, sometimes for too short a time for a failover",
			hold: seconds(0.3, 5), failover: true,
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				s, err := r.cluster.shardOf(ctx, r.tile())
				if err != nil {
					return "", nil, err
				}
				return pause(s.master)
			}},
		{Name: "master-killed", About: "SIGKILL of a Redis master; it comes back empty after its replica was promoted",
			hold: seconds(1, 2), failover: true, inject: killMaster},
		{Name: "owner-and-master-killed", About: "SIGKILL of a Redis master and of the worker that owns a tile there",
			hold: seconds(1, 2), failover: true, inject: killOwnerAndMaster},
		{Name: "replica-paused",
			About: "SIGSTOP of a Redis replica: installs wait for it until it is back, everything else goes on",
			hold:  seconds(1, 4), moves: true,
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				s, err := r.cluster.shardOf(ctx, r.tile())
				if err != nil {
					return "", nil, err
				}
				return pause(s.replica)
			}},
		{Name: "replica-killed", About: "SIGKILL of a Redis replica", hold: seconds(1, 3), moves: true,
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				s, err := r.cluster.shardOf(ctx, r.tile())
				if err != nil {
					return "", nil, err
				}
				return s.replica.Name(), s.replica.Restart, s.replica.Signal(os.Kill)
			}},
		{Name: "authority-paused", About: "SIGSTOP of PostgreSQL and all its processes while tiles are to move",
			hold: seconds(1, 4), moves: true,
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				p, err := r.postgres()
				if err != nil {
					return "", nil, err
				}
				return p.Name(), func(context.Context) error { return p.SignalAll(syscall.SIGCONT) },
					p.SignalAll(syscall.SIGSTOP)
			}},
		{Name: "authority-killed", About: "SIGKILL of PostgreSQL while tiles are to move; it recovers from its log",
			hold: seconds(1, 3), moves: true,
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				p, err := r.postgres()
				if err != nil {
					return "", nil, err
				}
				return p.Name(), p.Restart, p.Signal(os.Kill)
			}},
		{Name: "zombie-master",
			About: "a master and an owner are paused with a commit between them; others take over on the promoted replica; then both wake",
			hold:  seconds(0.1, 0.5), failover: true, alone: true, inject: zombieMaster},
		{Name: "fence-moved-back",
			About: "the replication link is cut, a successor installs on the master alone, and the master is killed: the replica knows only the old owner",
			hold:  seconds(0.5, 1.5), failover: true, inject: fenceMovedBack},
	}
}

func pause(p *devstack.Process) (string, func(context.Context) error, error) {
	return p.Name(), func(context.Context) error { return p.Signal(syscall.SIGCONT) }, p.Signal(syscall.SIGSTOP)
}

// killWorkers kills workers at once; the mending starts others at the same contacts.
func (r *run) killWorkers(victims ...*workerSlot) (string, func(context.Context) error, error) {
	var names []string
	var errs []error
	for _, w := range victims {
		names = append(names, w.name)
		r.orphans = append(r.orphans, r.supervisor.of(w)...)
		errs = append(errs, w.proc.Signal(os.Kill))
	}
	heal := func(ctx context.Context) error {
		var errs []error
		for _, w := range victims {
			errs = append(errs, r.startWorker(ctx, w))
		}
		return errors.Join(errs...)
	}
	return strings.Join(names, " "), heal, errors.Join(errs...)
}

func killMaster(ctx context.Context, r *run) (string, func(context.Context) error, error) {
	s, err := r.cluster.shardOf(ctx, r.tile())
	if err != nil {
		return "", nil, err
	}
	return s.master.Name(), r.reviveMaster(s), s.master.Signal(os.Kill)
}

// reviveMaster restarts a killed master once its replica has its place.
func (r *run) reviveMaster(s shard) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := r.cluster.awaitPromotion(ctx, s.replica, promotionTime); err != nil {
			return err
		}
		return s.master.Restart(ctx)
	}
}

func killOwnerAndMaster(ctx context.Context, r *run) (string, func(context.Context) error, error) {
	id := r.tile()
	s, err := r.cluster.shardOf(ctx, id)
	if err != nil {
		return "", nil, err
	}
	target, heal, err := r.killWorkers(r.owner(id))
	revive := r.reviveMaster(s)
	return target + " " + s.master.Name(), func(ctx context.Context) error {
			return errors.Join(revive(ctx), heal(ctx))
		},
		errors.Join(err, s.master.Signal(os.Kill))
}

// zombieMaster is the case of a master that sleeps through its own replacement and answers, when it wakes,
// to what waited in its socket: an acknowledgement of nothing.
func zombieMaster(ctx context.Context, r *run) (string, func(context.Context) error, error) {
	id := r.tile()
	owner := r.owner(id)
	s, err := r.cluster.shardOf(ctx, id)
	if err != nil {
		return "", nil, err
	}
	heal := func(context.Context) error {
		return errors.Join(s.master.Signal(syscall.SIGCONT), owner.proc.Signal(syscall.SIGCONT))
	}
	target := s.master.Name() + " " + owner.name
	if err := s.master.Signal(syscall.SIGSTOP); err != nil {
		return target, heal, err
	}
	// Long enough for the next tick's commit to be on its way, not for the owner to look elsewhere.
	time.Sleep(r.cfg.Tick + time.Duration(r.rng.Int64N(int64(r.cfg.Tick))))
	if err := owner.proc.Signal(syscall.SIGSTOP); err != nil {
		return target, heal, err
	}
	if err := r.cluster.awaitPromotion(ctx, s.replica, promotionTime); err != nil {
		return target, heal, err
	}
	return target, heal, await(ctx, r.cfg.ServeWithin, "others serve the tiles of the paused owner",
		r.supervisor.serving)
}

// fenceMovedBack is the case of a replica that is promoted without the newest epoch. The link is kept from
// coming up by a password that the master does not ask for.
func fenceMovedBack(ctx context.Context, r *run) (string, func(context.Context) error, error) {
	id := r.tile()
	s, err := r.cluster.shardOf(ctx, id)
	if err != nil {
		return "", nil, err
	}
	replica := r.cluster.node(s.replica)
	revive := r.reviveMaster(s)
	heal := func(ctx context.Context) error {
		return errors.Join(revive(ctx), replica.ConfigSet(ctx, "masterauth", "").Err())
	}
	target := s.master.Name() + " " + s.replica.Name()
	err = errors.Join(
		replica.ConfigSet(ctx, "masterauth", "wrong-password").Err(),
		replica.Do(ctx, "client", "kill", "type", "master").Err())
	if err != nil {
		return target, heal, errors.Join(err, s.master.Signal(os.Kill))
	}
	if to := r.otherWorker(r.owner(id)); to != nil {
		_ = r.supervisor.order(ctx, id, to) // the successor; it cannot be confirmed, and must not serve
	}
	time.Sleep(300*time.Millisecond + time.Duration(r.rng.Int64N(int64(700*time.Millisecond))))
	return target, heal, s.master.Signal(os.Kill)
}
