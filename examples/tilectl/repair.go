package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/redisstream"
)

// damageRow is one thing in the stores of a tile that the library has not written.
type damageRow struct {
	Tile   fence.TileID `json:"tile"`
	Field  string       `json:"field"`
	Stands string       `json:"stands"`
	CanBe  string       `json:"can_be"`
	Remedy string       `json:"remedy"`
	State  string       `json:"state"` // would, done, undecided or refused
}

// repairs are a run of repair.
type repairs struct {
	*tool
	rows           []damageRow
	looked, marred int
	left           bool // damage stays
	refused        []error
}

// repairTiles looks at tiles one after another, and with -apply mends what can be mended without losing what an owner
// has committed.
func repairTiles(ctx context.Context, t *tool, args []string) error {
	r := &repairs{tool: t}
	if err := r.check(len(args)); err != nil {
		return err
	}
	err := r.tiles(ctx, args)
	if err = errors.Join(r.print(), err, errors.Join(r.refused...)); err != nil {
		return err
	}
	switch {
	case r.marred == 0:
		t.say("%d tiles: nothing to mend\n", r.looked)
	case !r.left:
		t.say("%d of %d tiles are mended; the next owner goes on from what they have\n", r.marred, r.looked)
	case !t.options.apply:
		t.errs.printf("nothing was changed; -apply does what it would do\n")
	}
	if r.left {
		return errDamaged
	}
	return nil
}

// check looks at the command line, of so many tiles.
func (r *repairs) check(tiles int) error {
	for _, name := range r.deleted() {
		if !slices.Contains(redisstream.Removable, name) {
			return &usageError{fmt.Sprintf("-delete takes names of %s, not %q",
				strings.Join(redisstream.Removable, ","), name)}
		}
	}
	switch {
	case r.options.apply && r.options.dryRun:
		return &usageError{"repair takes -apply or -dry-run, which is what it does without -apply"}
	case r.options.remove != "" && tiles == 0:
		return &usageError{"repair takes the tiles of which -delete is to delete something"}
	}
	return nil
}

// tiles repairs tiles, none meaning all that the authority has a record of.
func (r *repairs) tiles(ctx context.Context, args []string) error {
	for _, id := range tilesOf(args) {
		g, err := r.authority.Lookup(ctx, id)
		if err != nil && !errors.Is(err, fence.ErrNeverOwned) {
			return err
		}
		if err := r.tile(ctx, id, g.Epoch); err != nil {
			return err
		}
	}
	if len(args) > 0 {
		return nil
	}
	for g, err := range fence.Records(ctx, r.authority) {
		if err == nil {
			err = r.tile(ctx, g.Tile, g.Epoch)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// repairPasses bounds how often a tile is repaired and looked at again: one thing can hide another.
const repairPasses = 4

// tile examines one tile and, with -apply, repairs it.
func (r *repairs) tile(ctx context.Context, id fence.TileID, epoch fence.Epoch) error {
	if r.looked++; r.looked%1000 == 0 {
		r.errs.printf("%d tiles looked at, %d with damage\n", r.looked, r.marred)
	}
	for pass := 0; ; pass++ {
		x, err := r.keys.Examine(ctx, id, epoch, r.deleted()...)
		if err != nil || len(x.Damage) == 0 {
			return err
		}
		if pass == 0 {
			r.marred++
		}
		state := "would"
		if r.options.apply && x.Repairable() && pass < repairPasses {
			state, err = r.apply(ctx, x)
		}
		r.note(x, state)
		if err != nil || state != "done" {
			return err
		}
	}
}

// deleted is what -delete names.
func (r *repairs) deleted() []string {
	return strings.FieldsFunc(r.options.remove, func(c rune) bool { return c == ',' })
}

// apply repairs a tile once its owner hash has not moved for -for, and prints the result.
func (r *repairs) apply(ctx context.Context, x *redisstream.Examination) (state string, err error) {
	if x.Owned {
		r.errs.printf("tile %s has an owner hash: looking for %v whether it moves\n", x.Tile, r.options.during)
		select {
		case <-ctx.Done():
			return "refused", context.Cause(ctx)
		case <-time.After(r.options.during):
		}
	}
	err = r.keys.Repair(ctx, x)
	if changed, ok := errors.AsType[*redisstream.ChangedError](err); ok {
		r.refused = append(r.refused, changed)
		return "refused", nil
	}
	if err != nil {
		return "refused", err
	}
	return "done", nil
}

// note adds the damage of a tile to the rows. What is undecided is looked at again after what was done.
func (r *repairs) note(x *redisstream.Examination, state string) {
	for _, d := range x.Damage {
		row := damageRow{Tile: x.Tile, Field: d.Field, Stands: d.Stands, CanBe: d.CanBe, Remedy: d.Remedy, State: state}
		if d.Undecided && state == "done" {
			continue
		}
		if d.Undecided {
			row.State = "undecided"
		}
		r.left = r.left || row.State != "done"
		r.rows = append(r.rows, row)
	}
}

func (r *repairs) print() error {
	if len(r.rows) == 0 {
		return nil
	}
	return printTable(r.tool, "TILE FIELD STANDS CAN-BE STATE REMEDY", r.rows, func(d *damageRow) []any {
		return []any{d.Tile, d.Field, d.Stands, d.CanBe, d.State, d.Remedy}
	})
}
