package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/redisplan"
)

// openPlans opens the requests of tile/plan, on the Redis that -redis names. Unlike the others, this store loads its
// function library where that is missing, if the user may.
func (t *tool) openPlans(ctx context.Context) error {
	client, err := t.coordination(ctx)
	if err != nil {
		return err
	}
	t.plans, err = redisplan.New(client, &redisplan.Config{World: t.world(), Name: t.options.planName})
	return err
}

// shardRow is what one shard holds.
type shardRow struct {
	Shard      int     `json:"shard"`
	Players    int     `json:"players"`
	Background int     `json:"background"`
	Busy       int     `json:"busy"` // running, or resting after a failure
	Dead       int     `json:"dead"`
	Usage      int     `json:"usage"`
	Oldest     float64 `json:"oldest_s"`
}

func listPlans(ctx context.Context, t *tool, _ []string) error {
	var rows []shardRow
	for shard := range t.plans.Shards() {
		d, err := t.plans.Depth(ctx, shard)
		if err != nil {
			return err
		}
		rows = append(rows, shardRow{shard, d.Players, d.Background, d.Busy, d.Dead, d.Usage, d.Oldest.Seconds()})
	}
	return printTable(t, "SHARD PLAYERS BACKGROUND BUSY DEAD USAGE OLDEST", rows, func(r *shardRow) []any {
		return []any{r.Shard, r.Players, r.Background, r.Busy, r.Dead, r.Usage,
			time.Duration(r.Oldest * float64(time.Second)).Round(time.Millisecond)}
	})
}

// planRow is a dead letter of tile/plan, and what happened to it.
type planRow struct {
	ID       string       `json:"id"`
	Tile     fence.TileID `json:"tile"`
	Entity   string       `json:"entity"`
	Tier     string       `json:"tier"`
	Attempts int          `json:"attempts"`
	Died     time.Time    `json:"died"`
	Now      string       `json:"now"` // dead, replayed, dropped, would be …; or why not
	Error    string       `json:"error"`

	shard int
}

// planLetters reads the dead letters: all of them, or those named by ID or by tile.
func (t *tool) planLetters(ctx context.Context, names []string) (rows []planRow, err error) {
	found := map[string]bool{}
	for shard := range t.plans.Shards() {
		letters, err := t.plans.Letters(ctx, shard)
		if err != nil {
			return nil, err
		}
		for _, l := range letters {
			q := &l.Request
			byID, byTile := slices.Contains(names, q.ID), slices.Contains(names, q.Tile.String())
			if len(names) > 0 && !byID && !byTile {
				continue
			}
			found[q.ID], found[q.Tile.String()] = true, true
			rows = append(rows, planRow{ID: q.ID, Tile: q.Tile, Entity: q.Entity, Tier: q.Tier.String(),
				Attempts: q.Attempt, Died: l.At, Now: "dead", Error: l.Error, shard: shard})
		}
	}
	for _, name := range names {
		if !found[name] {
			return nil, fmt.Errorf("no dead letter has the ID or the tile %q", name)
		}
	}
	return rows, nil
}

func (t *tool) printPlanLetters(rows []planRow) error {
	return printTable(t, "ID TILE ENTITY TIER ATTEMPTS DIED NOW ERROR", rows, func(r *planRow) []any {
		return []any{r.ID, r.Tile, fmt.Sprintf("%q", r.Entity), r.Tier, r.Attempts, r.Died.Format(time.RFC3339), r.Now,
			fmt.Sprintf("%q", r.Error)}
	})
}

func listPlanLetters(ctx context.Context, t *tool, args []string) error {
	rows, err := t.planLetters(ctx, args)
	if err != nil {
		return err
	}
	return t.printPlanLetters(rows)
}

// errPlansKept ends the program with status 1 after the rest has been done.
var errPlansKept = errors.New("some dead letters are kept: their entities have newer requests")

// replayPlans queues dead letters anew. One whose entity has asked again since is kept.
func replayPlans(ctx context.Context, t *tool, args []string) error {
	rows, err := t.planLetters(ctx, args)
	if err != nil {
		return err
	}
	kept := false
	for i := range rows {
		r := &rows[i]
		if t.options.dryRun {
			r.Now = "would be replayed"
			continue
		}
		switch err := t.plans.Replay(ctx, r.shard, r.ID); {
		case err == nil:
			r.Now = "replayed"
		case errors.Is(err, plan.ErrInFlight):
			r.Now, kept = "kept: "+err.Error(), true
		case errors.Is(err, plan.ErrNoLetter):
			r.Now = "already gone"
		default:
			return errors.Join(t.printPlanLetters(rows[:i]), fmt.Errorf("letter %s: %w", r.ID, err))
		}
	}
	err = t.printPlanLetters(rows)
	if err == nil && kept {
		err = errPlansKept
	}
	return err
}

// dropPlans deletes dead letters.
func dropPlans(ctx context.Context, t *tool, args []string) error {
	rows, err := t.planLetters(ctx, args)
	if err != nil {
		return err
	}
	if len(rows) > 0 && !t.options.dryRun {
		if err := t.confirm("%d dead letters will be deleted.", len(rows)); err != nil {
			return err
		}
	}
	for i := range rows {
		if rows[i].Now = "would be dropped"; t.options.dryRun {
			continue
		}
		err := t.plans.Drop(ctx, rows[i].shard, rows[i].ID)
		if err != nil && !errors.Is(err, plan.ErrNoLetter) {
			return errors.Join(t.printPlanLetters(rows[:i]), fmt.Errorf("letter %s: %w", rows[i].ID, err))
		}
		rows[i].Now = "dropped"
	}
	return t.printPlanLetters(rows)
}
