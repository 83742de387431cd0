package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

// checkpointRow is one durable snapshot.
type checkpointRow struct {
	Tile    fence.TileID `json:"tile"`
	Seq     fence.Seq    `json:"seq"`
	Epoch   fence.Epoch  `json:"epoch"`
	Chain   fence.Chain  `json:"chain"`
	Tick    fence.Tick   `json:"tick"`
	Contact string       `json:"contact"`
	Taken   int64        `json:"taken_ms"`
	Size    int          `json:"bytes"`
	Sum     string       `json:"sum"`
	Verdict string       `json:"verdict,omitempty"`
}

func checkpointRowOf(h checkpoint.Head) checkpointRow {
	return checkpointRow{Tile: h.Tile, Seq: h.Seq, Epoch: h.Epoch, Chain: h.Chain, Tick: h.Tick, Contact: h.Contact,
		Taken: fence.Millis(h.Taken), Size: h.Size, Sum: h.Sum}
}

func (t *tool) printCheckpoints(rows []checkpointRow) error {
	slices.SortFunc(rows, func(a, b checkpointRow) int { return cmp.Compare(a.Tile, b.Tile) })
	return printTable(t, "TILE SEQ EPOCH TICK TAKEN SIZE WRITTEN-BY VERDICT", rows, func(r *checkpointRow) []any {
		return []any{r.Tile, r.Seq, r.Epoch, r.Tick, millis(r.Taken), size(int64(r.Size)), r.Contact, r.Verdict}
	})
}

func listCheckpoints(ctx context.Context, t *tool, _ []string) error {
	var rows []checkpointRow
	for h, err := range t.checkpoints.List(ctx) {
		if err != nil {
			return err
		}
		rows = append(rows, checkpointRowOf(h))
	}
	return t.printCheckpoints(rows)
}

func showCheckpoint(ctx context.Context, t *tool, args []string) error {
	id := tileOf(args[0])
	s, err := t.checkpoint(ctx, id)
	if err != nil {
		return err
	}
	if t.options.blob {
		if err := t.redirected(); err != nil {
			return err
		}
		_, err := t.raw.Write(s.Blob)
		return err
	}
	row := checkpointRowOf(checkpoint.HeadOf(id, &s))
	row.Verdict = "intact"
	return t.printCheckpoints([]checkpointRow{row})
}

// checkpoint reads a tile's durable snapshot, verified.
func (t *tool) checkpoint(ctx context.Context, id fence.TileID) (fence.Snapshot, error) {
	s, found, err := checkpoint.Restore(ctx, t.checkpoints, id)
	if err == nil && !found {
		err = fmt.Errorf("tile %s has no checkpoint", id)
	}
	return s, err
}

// verifyCheckpoints reads each snapshot and reports all damage before the command fails.
func verifyCheckpoints(ctx context.Context, t *tool, args []string) error {
	tiles := tilesOf(args)
	if len(args) == 0 {
		for h, err := range t.checkpoints.List(ctx) {
			if err != nil {
				return err
			}
			tiles = append(tiles, h.Tile)
		}
	}
	var rows []checkpointRow
	damaged := false
	for _, id := range tiles {
		s, found, err := checkpoint.Restore(ctx, t.checkpoints, id)
		row := checkpointRow{Tile: id, Verdict: "none"}
		switch {
		case errors.Is(err, fence.ErrCorrupt):
			row.Verdict, damaged = err.Error(), true
		case err != nil:
			return err
		case found:
			row = checkpointRowOf(checkpoint.HeadOf(id, &s))
			row.Verdict = "intact"
		}
		rows = append(rows, row)
	}
	if err := t.printCheckpoints(rows); err != nil {
		return err
	}
	if damaged {
		return errDamaged
	}
	return nil
}

// operator is the contact under which tilectl holds a tile while it restores it.
const operator = "tilectl"

// restoreCheckpoint makes the durable snapshot the tile's state again: it takes the tile, rebases it, and
// releases it, so that the next owner starts from there. Later commits are discarded.
func restoreCheckpoint(ctx context.Context, t *tool, args []string) error {
	id := tileOf(args[0])
	snapshot, err := t.checkpoint(ctx, id)
	if err != nil {
		return err
	}
	return t.restore(ctx, id, &snapshot)
}

// restore makes a snapshot the tile's state.
func (t *tool) restore(ctx context.Context, id fence.TileID, snapshot *fence.Snapshot) error {
	row, err := t.row(ctx, id)
	if err != nil {
		return err
	}
	if row.State == "owned" && !t.options.force {
		return fmt.Errorf("tile %s is owned by %s: drain that owner first, or pass -force to take the tile from it", id,
			row.Owner)
	}
	grant, err := t.seize(ctx, id, max(snapshot.Epoch, row.Epoch))
	if err != nil {
		return err
	}
	rebase := fence.Rebase{Tile: id, Epoch: grant.Epoch, Contact: operator,
		Seq: max(snapshot.Seq, row.Seq) + fence.RebaseJump, Tick: snapshot.Tick, Blob: snapshot.Blob,
		Replicas: fence.AllReplicas}
	receipt, err := t.store.Rebase(ctx, rebase)
	err = errors.Join(err, t.authority.Release(context.WithoutCancel(ctx), grant))
	if err != nil {
		return fmt.Errorf("tile %s may not have been restored, run the command again: %w", id, err)
	}
	t.say("tile %s is restored to tick %d of %s; the sequence continues at %d under epoch %d\n",
		id, snapshot.Tick, moment(fence.Millis(snapshot.Taken)), receipt.Position.Seq, grant.Epoch)
	if row.Tick > snapshot.Tick {
		t.say("%d later ticks are discarded\n", row.Tick-snapshot.Tick)
	}
	return nil
}

// seize takes a tile for the operator from its owner, if it has one.
func (t *tool) seize(ctx context.Context, id fence.TileID, above fence.Epoch) (fence.Grant, error) {
	current, err := t.authority.Lookup(ctx, id)
	if err != nil && !errors.Is(err, fence.ErrNeverOwned) {
		return fence.Grant{}, err
	}
	c := fence.Claim{Tile: id, Contact: operator, ID: fence.NewClaimID(), Expected: current.Epoch, Floor: above}
	if current.Held() {
		return t.authority.Promote(ctx, c)
	}
	return t.authority.Claim(ctx, c)
}
