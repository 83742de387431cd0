package pgfence

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
)

// lockWait is how long a transaction waits for a row that another one has locked before it is rolled back: longer than
// others of this package take, so that a race is decided, and short, since up to 500 calls share it.
const lockWait = 250 * time.Millisecond

// asideWait is how long a call waits for its row aside, its wait for its turn included. With lockWait it is less than
// the time in which a tile wants an answer, so that the error can say why there is none.
const asideWait = 1500 * time.Millisecond

// present carries out a call, alone or in a set, and returns the row it left (epoch zero for none), or a
// *fence.StoreError.
func (a *authority) present(ctx context.Context, c verdict.Call) (row fence.Grant, err error) {
	l := a.lanesOf(c.Kind)
	leave, ok := l.try()
	if !ok {
		return a.await(ctx, l, l.gather([]verdict.Call{c})[0])
	}
	fail := a.single(ctx, &c, a.lockWait, &row)
	leave() // a call that waits for its row does not hold up others
	if fail != nil && fail.locked {
		return a.aside(ctx, &c)
	}
	return row, a.failed(&c, fail)
}

// presentMany carries out writing calls in sets, and gives their rows and errors to each, in the same order.
func (a *authority) presentMany(
	ctx context.Context, calls []verdict.Call, each func(i int, row fence.Grant, err error),
) {
	for i, m := range a.mints.gather(calls) {
		row, err := a.await(ctx, a.mints, m)
		each(i, row, err)
	}
}

// lanesOf are the lanes for calls of a kind. A lookup does not wait behind writes, which have to reach a disk.
func (a *authority) lanesOf(k verdict.Kind) *lanes {
	if k == verdict.Lookup {
		return a.lookups
	}
	return a.mints
}

// await waits for the outcome of a member until ctx ends.
func (a *authority) await(ctx context.Context, l *lanes, m *member) (fence.Grant, error) {
	select {
	case <-m.done:
	case <-ctx.Done():
		select {
		case <-m.done: // both are ready: prefer the answer
		default:
			f := failure{unknown: l.leave(m)}
			return fence.Grant{}, failed(&m.Call, f.outcome(m.Kind), ended(ctx))
		}
	}
	if m.refused {
		return a.alone(ctx, &m.Call)
	}
	return m.row, m.err
}

// ended is the error of a ctx that is done, with its cause.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() { //nolint:errorlint // the very same
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

// runSet carries out a set and answers its members. A set that the server refuses has changed nothing, and one
// member may be the reason; the members are then carried out one by one. A member whose row is locked is left behind,
// and the others go on together.
func (a *authority) runSet(s *set) {
	fail := a.presentSet(s)
	if fail != nil && fail.locked && a.leaveLocked(s) {
		fail = a.presentSet(s)
	}
	for _, m := range s.members {
		switch {
		case fail == nil:
		case fail.refused && !fail.unknown:
			m.refused = true
		default:
			m.err = a.failed(&m.Call, fail)
		}
		close(m.done)
	}
}

// presentSet carries out the transaction of a set, which leaves their rows in its members.
func (a *authority) presentSet(s *set) *failure {
	l := a.lanesOf(s.kind)
	return a.transact(s.ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		members := l.seal(s)
		switch len(members) {
		case 0:
			return nil
		case 1:
			return a.roundTrip(ctx, conn, a.one(&members[0].Call, a.lockWait, &members[0].row))
		}
		for _, m := range members {
			m.row = fence.Grant{}
		}
		return a.roundTrip(ctx, conn, a.setOf(s.kind, members, func(g fence.Grant) {
			if i, found := slices.BinarySearchFunc(members, int64(g.Tile), byTile); found {
				members[i].row = g
			}
		}))
	})
}

// leaveLocked takes members whose rows are locked out of a set that waited for one of them; they go on alone. It
// reports whether there were any, and others are left. A row that another transaction is inserting is not seen.
func (a *authority) leaveLocked(s *set) bool {
	if len(s.members) < 2 {
		return false
	}
	tiles := make([]int64, len(s.members))
	for i, m := range s.members {
		tiles[i] = int64(m.Tile)
	}
	var locked []int64
	fail := a.transact(s.ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, a.sql.lockedSet, tiles)
		if err == nil {
			locked, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	})
	if fail != nil || len(locked) == 0 {
		return false
	}
	for _, m := range a.lanesOf(s.kind).leaveBehind(s, locked) {
		m.refused = true
		close(m.done)
	}
	return len(s.members) > 0
}

func byTile(m *member, tile int64) int { return cmp.Compare(int64(m.Tile), tile) }
