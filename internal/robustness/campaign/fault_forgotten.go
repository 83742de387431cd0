//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/faultinject/serverfault"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// forgottenFaults make an authority that was restored to an older state name an owner that slept, while its
// successors served.
func forgottenFaults() []*Fault {
	return []*Fault{
		{Name: "successor-forgotten",
			About: "an owner sleeps while its successors serve; the last is killed and the authority's row restored, " +
				"and the owner wakes",
			hold: seconds(2, 3), staged: true,
			inject: func(ctx context.Context, r *run, v victim) error { return r.forgetSuccessor(ctx, v, nil) }},
		{Name: "outshone",
			About: "the same on a promoted master without a replica, which is lost with them: watchers were shown an " +
				"epoch that neither store nor authority knows",
			hold: seconds(2, 3), failover: true, alone: true, loses: true, appendOnly: true, staged: true,
			inject: outshine},
		{Name: "twin-wakes",
			About: "an owner sleeps, and its successor on a promoted master without a replica, which is lost: the " +
				"owner wakes, is granted the successor's epoch anew and serves; then the authority is restored once " +
				"more, to name the successor, which wakes",
			hold: seconds(1, 2), failover: true, alone: true, loses: true, appendOnly: true, staged: true,
			inject: wakeTwin},
	}
}

// forgetSuccessor pauses a tile's owner until watchers were shown a second successor, kills that one, restores the
// authority's row, and wakes the owner. lose is called before the restore, if it is not nil.
func (r *run) forgetSuccessor(ctx context.Context, v victim, lose func() error) error {
	row, err := r.Authority.Lookup(ctx, v.tile)
	if err := errors.Join(err, r.pause(v.owner.proc), r.awaitShown(ctx, v.tile, row.Epoch+1)); err != nil {
		return err
	}
	first := r.owner(v.tile)
	for _, w := range r.workers {
		if w != first && w != v.owner {
			_ = r.supervisor.order(ctx, v.tile, w) // awaitShown shows whether it arrived
		}
	}
	if err := r.awaitShown(ctx, v.tile, row.Epoch+2); err != nil {
		return err
	}
	time.Sleep(time.Duration(r.rng.Int64N(int64(10 * tick))))
	if lose != nil {
		err = lose()
	}
	err = errors.Join(err, r.killWorker(r.owner(v.tile)), r.putBack(ctx, v.tile, history.GrantOf(row)))
	r.supervisor.returned(v.tile, v.owner)
	return errors.Join(err, v.owner.proc.Signal(devstack.GoOn))
}

// awaitShown waits until every tile serves and all watchers have seen a tile at an epoch.
func (r *run) awaitShown(ctx context.Context, id fence.TileID, epoch fence.Epoch) error {
	what := fmt.Sprintf("watchers are shown epoch %d of tile %s", epoch, id)
	return serverfault.Await(ctx, r.cfg.ServeWithin, what, func() error {
		for _, w := range r.observers.watchers {
			if at, _ := w.At(id); at.Epoch < epoch {
				return fmt.Errorf("%s is at %s", w.Name, at)
			}
		}
		return r.supervisor.serving()
	})
}

// outshine lets the store forget the successor too: it served on one copy, which is lost.
func outshine(ctx context.Context, r *run, v victim) error {
	r.damage.Hit(v.Master.Name()+" "+v.Replica.Name(),
		func(ctx context.Context) error { return r.promoteAgain(ctx, v.Shard) })
	err := errors.Join(v.Master.Signal(os.Kill), r.cluster.AwaitPromotion(ctx, v.Shard, promotionTime),
		serverfault.Await(ctx, r.cfg.ServeWithin, "every tile serves", r.supervisor.serving))
	if err != nil {
		return err
	}
	return r.forgetSuccessor(ctx, v, func() error { return r.loseCopy(v.Replica) })
}

// loseCopy kills the only node that has what was committed lately.
func (r *run) loseCopy(p *devstack.Process) error {
	err := p.Signal(os.Kill)
	r.recorder.Fault(history.FaultInfo{Name: "every copy is lost", Failover: true, Loses: true})
	return err
}

// wakeTwin is the case of two owners that have both served, whose later one finds that every copy of its work is lost.
// What the one that wakes first has confirmed is kept, whatever the authority says. If that one was granted the epoch
// of the other anew, the authority is restored to name the other.
func wakeTwin(ctx context.Context, r *run, v victim) error {
	r.damage.Hit(v.Master.Name()+" "+v.Replica.Name(), nil) // a run that fails before they are back ends their cluster
	err := errors.Join(v.Master.Signal(os.Kill), r.cluster.AwaitPromotion(ctx, v.Shard, promotionTime),
		serverfault.Await(ctx, r.cfg.ServeWithin, "every tile serves", r.supervisor.serving))
	older, err1 := r.Authority.Lookup(ctx, v.tile)
	err = errors.Join(err, err1, r.pause(v.owner.proc), r.awaitShown(ctx, v.tile, older.Epoch+1))
	if err != nil {
		return err
	}
	twin := r.owner(v.tile)
	row, err := r.Authority.Lookup(ctx, v.tile)
	err = errors.Join(err, r.pause(twin.proc), r.loseCopy(v.Replica), r.putBack(ctx, v.tile, history.GrantOf(older)))
	r.supervisor.returned(v.tile, v.owner)
	err = errors.Join(err, v.owner.proc.Signal(devstack.GoOn), r.promoteAgain(ctx, v.Shard),
		r.awaitCommits(ctx, v.tile, twin.contact))
	time.Sleep(time.Duration(r.rng.Int64N(int64(10 * tick)))) // it answers
	// It may have gone above it already; or the third has taken the tile, while the other two slept.
	if o, err := r.Store.Owner(ctx, v.tile); err == nil && o.Epoch == row.Epoch && o.Contact == older.Contact {
		if err := r.putBack(ctx, v.tile, history.GrantOf(row)); err != nil {
			return err
		}
	}
	return errors.Join(err, twin.proc.Signal(devstack.GoOn))
}

// awaitCommits waits until a tile's owner has committed since this was called, which is not the one at a contact.
func (r *run) awaitCommits(ctx context.Context, id fence.TileID, but string) error {
	var first fence.Owner
	return serverfault.Await(ctx, r.cfg.ServeWithin, "an owner commits to tile "+id.String(), func() error {
		o, err := r.Store.Owner(ctx, id)
		switch {
		case err != nil:
			return err
		case !o.Present() || o.Contact == but:
			return fmt.Errorf("the tile is %s's under epoch %d", o.Contact, o.Epoch)
		case first.Contact != o.Contact:
			first = o
		}
		if o.Position == first.Position {
			return fmt.Errorf("%s has not since %s", o.Contact, first.Position)
		}
		return nil
	})
}
