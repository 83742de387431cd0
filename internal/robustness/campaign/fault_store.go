//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/serverfault"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// storeFaults change what the stores hold, under the feet of living owners.
func storeFaults() []*Fault {
	return []*Fault{
		{Name: faultinject.OwnerHashDeleted.Name, About: "the owner hashes of all tiles are deleted, several times",
			hold: seconds(0.2, 1), moves: true, inject: deleteOwnerKeys},
		{Name: faultinject.FunctionsFlushed.Name,
			About: "FUNCTION FLUSH on every master, several times", hold: seconds(0.2, 1),
			moves: true, inject: flushFunctions},
		{Name: "slots-migrated",
			About: "the slots of a master's tiles move to another master, key by key, while they commit",
			// After many failovers no node may have the slots that moved: the cluster forgets who took them.
			hold: seconds(0.2, 1), single: true, inject: migrateSlots},
		{Name: "authority-restored",
			About: "the authority's rows are deleted or restored to an older state while the owners live",
			hold:  seconds(0.5, 2), moves: true, single: true, inject: restoreAuthority},
		{Name: "standby-promoted",
			About: "PostgreSQL is killed, and a standby promoted that lacks the last grants; in some runs the owner " +
				"that they superseded sleeps meanwhile",
			hold: seconds(0.5, 2), single: true, inject: promoteStandby},
		{Name: "claimant-lost", About: "the authority grants tiles to a process that dies before its install",
			hold: seconds(0.2, 1), inject: loseClaimant},
	}
}

func deleteOwnerKeys(ctx context.Context, r *run, _ victim) error {
	r.damage.Hit(fmt.Sprintf("%d tiles", len(r.tiles)), nil)
	for range 1 + r.rng.IntN(5) {
		if err := r.cluster.DeleteOwners(ctx, r.tiles...); err != nil {
			return err
		}
		time.Sleep(time.Duration(r.rng.Int64N(int64(3 * tick))))
	}
	return nil
}

func flushFunctions(ctx context.Context, r *run, _ victim) error {
	r.damage.Hit("all masters", nil)
	for range 1 + r.rng.IntN(5) {
		if err := r.cluster.FlushFunctions(ctx); err != nil {
			return err
		}
		time.Sleep(time.Duration(r.rng.Int64N(int64(3 * tick))))
	}
	return nil
}

// migrateSlots moves the slots of all tiles of one master to another.
func migrateSlots(ctx context.Context, r *run, v victim) error {
	masters, err := r.cluster.Masters(ctx)
	if err != nil {
		return err
	}
	masters = slices.DeleteFunc(masters, func(p *devstack.Process) bool { return p == v.Master })
	if len(masters) == 0 {
		return errors.New("there is no other master")
	}
	to := masters[r.rng.IntN(len(masters))]
	r.damage.Hit("slots from "+v.Master.Addr()+" to "+to.Addr(), nil)
	for _, id := range r.tiles {
		from, err := r.cluster.MasterOf(ctx, id)
		if err != nil {
			return err
		}
		if from != v.Master {
			continue
		}
		if err := r.cluster.MigrateSlot(ctx, id, from, to, func() {
			time.Sleep(time.Duration(r.rng.Int64N(int64(tick))))
		}); err != nil {
			return err
		}
	}
	return nil
}

// restoreAuthority does what a restore from a backup does: it overwrites newer rows.
func restoreAuthority(ctx context.Context, r *run, _ victim) error {
	r.damage.Hit(fmt.Sprintf("%d rows", len(r.tiles)), nil)
	before, err := r.rows(ctx, r.table)
	if err != nil {
		return err
	}
	if r.rng.IntN(3) == 0 {
		clear(before) // a backup from before the tiles were first claimed
	}
	if err := r.succeedSome(ctx); err != nil {
		return err
	}
	for _, id := range r.tiles {
		if err := r.putBack(ctx, id, before[id]); err != nil {
			return err
		}
	}
	return nil
}

// succeedSome gives some tiles a successor, which the authority is about to forget.
func (r *run) succeedSome(ctx context.Context) error {
	for range 1 + r.rng.IntN(3) {
		id := r.tile()
		if to := r.otherWorker(r.owner(id)); to != nil {
			if err := r.supervisor.order(ctx, id, to); err != nil {
				return err
			}
		}
	}
	return serverfault.Await(ctx, r.cfg.ServeWithin, "the successors serve", r.supervisor.serving)
}

// promoteStandby is a failover of the authority to a server that has lost its link to the primary a while ago.
func promoteStandby(ctx context.Context, r *run, v victim) error {
	r.damage.Hit(r.postgres().Name(), nil)
	if err := r.pair.Follow(ctx); err != nil {
		return err
	}
	if err := r.pair.Cut(ctx); err != nil {
		return err
	}
	table, err := pgxpool.New(ctx, r.pair.StandbyURL())
	if err != nil {
		return err
	}
	defer table.Close()
	before, err := r.rows(ctx, table)
	if err != nil {
		return err
	}
	if r.rng.IntN(2) == 0 { // the owner wakes when the authority says again that its tiles are its own
		if err = r.pause(v.owner.proc); err == nil {
			time.Sleep(2 * silentFor)
			err = serverfault.Await(ctx, r.cfg.ServeWithin, "the successors serve", r.supervisor.serving)
		}
	} else {
		err = r.succeedSome(ctx)
	}
	if err != nil {
		return err
	}
	for _, id := range r.tiles {
		defer r.recorder.Restored("campaign", id, before[id])()
	}
	return r.pair.Promote(ctx)
}

// loseClaimant does what a claimant does up to its install. The owners of the tiles live, and hear nothing of it.
func loseClaimant(ctx context.Context, r *run, _ victim) error {
	authority := r.recorder.Authority("lost claimant", r.Authority)
	for range 1 + r.rng.IntN(len(r.tiles)) {
		id := r.tile()
		r.damage.Hit(id.String(), nil)
		g, err := r.Authority.Lookup(ctx, id)
		if err != nil {
			return err
		}
		_, err = authority.Promote(ctx, fence.Claim{Tile: id, Contact: r.otherWorker(r.owner(id)).contact,
			ID: fence.NewClaimID(), Expected: g.Epoch})
		if err != nil && !errors.Is(err, fence.ErrLost) {
			return err
		}
	}
	return nil
}

// rows reads the authority's rows of the run's tiles. It asks no authority, which does not believe a standby.
func (r *run) rows(ctx context.Context, table *pgxpool.Pool) (map[fence.TileID]history.Grant, error) {
	rows := map[fence.TileID]history.Grant{}
	for _, id := range r.tiles {
		var epoch int64
		g := fence.Grant{Tile: id}
		err := table.QueryRow(ctx, "SELECT epoch, coalesce(contact, ''), claim FROM "+pgfence.DefaultTable+
			" WHERE tile = $1", int64(id)).Scan(&epoch, &g.Contact, (*[16]byte)(&g.ID))
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, err
		}
		g.Epoch = fence.Epoch(epoch)
		rows[id] = history.GrantOf(g)
	}
	return rows, nil
}

// putBack replaces a tile's row; a zero grant deletes it.
func (r *run) putBack(ctx context.Context, id fence.TileID, g history.Grant) (err error) {
	done := r.recorder.Restored("campaign", id, g)
	defer done()
	if g.Epoch == 0 {
		_, err = r.table.Exec(ctx, "DELETE FROM "+pgfence.DefaultTable+" WHERE tile = $1", int64(id))
	} else {
		_, err = r.table.Exec(ctx, "UPDATE "+pgfence.DefaultTable+
			" SET epoch = $2, contact = NULLIF($3, ''), claim = $4 WHERE tile = $1",
			int64(id), int64(g.Epoch), g.Contact, g.ID)
	}
	return err
}
