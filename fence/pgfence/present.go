package pgfence

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
)

// present carries out a call, alone or in a set, and returns the row it left (epoch zero for none), or a
// *fence.StoreError.
func (a *Authority) present(ctx context.Context, c verdict.Call) (fence.Grant, error) {
	l := a.lanesOf(c.Kind)
	if leave, ok := l.try(); ok {
		defer leave()
		return a.alone(ctx, &c)
	}
	return a.await(ctx, l, l.gather([]verdict.Call{c})[0])
}

// presentMany carries out writing calls in sets, and gives their rows and errors to each, in the same order.
func (a *Authority) presentMany(
	ctx context.Context, calls []verdict.Call, each func(i int, row fence.Grant, err error),
) {
	for i, m := range a.mints.gather(calls) {
		row, err := a.await(ctx, a.mints, m)
		each(i, row, err)
	}
}

// lanesOf are the lanes for calls of a kind. A lookup does not wait behind writes, which have to reach a disk.
func (a *Authority) lanesOf(k verdict.Kind) *lanes {
	if k == verdict.Lookup {
		return a.lookups
	}
	return a.mints
}

// await waits for the outcome of a member until ctx ends.
func (a *Authority) await(ctx context.Context, l *lanes, m *member) (fence.Grant, error) {
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
// member may be the reason; the members are then carried out one by one.
func (a *Authority) runSet(s *set) {
	l := a.lanesOf(s.kind)
	fail := a.transact(s.ctx, func() *transaction {
		members := l.seal(s)
		switch len(members) {
		case 0:
			return nil
		case 1:
			return a.one(&members[0].Call, &members[0].row)
		}
		for _, m := range members {
			m.row = fence.Grant{}
		}
		return a.setOf(s.kind, members, func(g fence.Grant) {
			if i, found := slices.BinarySearchFunc(members, int64(g.Tile), byTile); found {
				members[i].row = g
			}
		})
	})
	for _, m := range s.members {
		switch {
		case fail == nil:
		case fail.refused && !fail.unknown:
			m.refused = true
		default:
			m.err = failed(&m.Call, fail.outcome(s.kind), a.hint(fail.cause))
		}
		close(m.done)
	}
}

func byTile(m *member, tile int64) int { return cmp.Compare(int64(m.Tile), tile) }
