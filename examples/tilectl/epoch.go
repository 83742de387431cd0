package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// beyond is how far above the authority's an epoch is impossible: processes mint one at a time, and a store that was
// restored to an older state lacks few.
const beyond fence.Epoch = 1 << 20

// repairEpoch removes from the coordination store what carries an epoch that the authority cannot have minted. Every
// owner since must be above it, and above 2^53-1 there is none: the tile cannot be claimed any more.
func repairEpoch(ctx context.Context, t *tool, args []string) error {
	id := tileOf(args[0])
	grant, err := t.authority.Lookup(ctx, id)
	if err != nil && !errors.Is(err, fence.ErrNeverOwned) {
		return err
	}
	most := grant.Epoch + beyond
	if most > fence.MaxNumber {
		return fmt.Errorf("the authority itself has epoch %d of tile %s: lower it by hand first, see "+
			"docs/operations.md", grant.Epoch, id)
	}
	k := t.world().Keys(id)
	snapshot, err := t.nodes.HGet(ctx, k.Snapshot, "epoch").Uint64()
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		return err
	case fence.Epoch(snapshot) > most:
		return fmt.Errorf("the snapshot of tile %s has epoch %d, so its state is not to be believed: "+
			"delete %s, %s and %s, and run tilectl checkpoint restore", id, snapshot, k.Snapshot, k.Stream, k.Owner)
	}
	owner, err := t.wrongOwner(ctx, k.Owner, most)
	if err != nil {
		return err
	}
	wrong, end, err := t.wrongEntries(ctx, id, most)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "tile %s: the authority has epoch %d; owner hash to delete: %t; stream entries to delete: %d\n",
		id, grant.Epoch, owner, len(wrong))
	if !owner && len(wrong) == 0 || t.options.dryRun {
		return nil
	}
	if err := t.confirm("What they hold is lost; make sure that no tile server runs the tile."); err != nil {
		return err
	}
	return t.removeWrong(ctx, &k, owner, wrong, end)
}

// wrongOwner reports whether the owner hash has an impossible epoch, or none.
func (t *tool) wrongOwner(ctx context.Context, key string, most fence.Epoch) (bool, error) {
	head, err := t.nodes.HGet(ctx, key, "head").Result()
	if errors.Is(err, redis.Nil) {
		n, err := t.nodes.Exists(ctx, key).Result()
		return n > 0, err
	}
	if err != nil {
		return false, err
	}
	at, err := fence.ParsePosition(head)
	return err != nil || at.Epoch > most, nil //nolint:nilerr // one that cannot be read is as wrong
}

// wrongEntries are the entries at the end of the stream that have an impossible epoch, or cannot be read, and the ID of
// the last one before them.
func (t *tool) wrongEntries(ctx context.Context, id fence.TileID, most fence.Epoch) (wrong []string, end string,
	err error) {
	key, from := t.world().Keys(id).Stream, "+"
	for {
		page, err := t.nodes.XRevRangeN(ctx, key, from, "-", 100).Result()
		if err != nil || len(page) == 0 {
			return wrong, "", err
		}
		for _, m := range page {
			frame, _ := m.Values[stream.FrameField].(string)
			if e, bad := fence.DecodeEntry([]byte(frame)); bad == nil && e.Tile == id && e.Epoch <= most {
				return wrong, m.ID, nil
			}
			wrong = append(wrong, m.ID)
		}
		from = "(" + page[len(page)-1].ID
	}
}

// removeWrong deletes the owner hash, if it is wrong, and the entries after end, so that the stream goes on from there.
func (t *tool) removeWrong(ctx context.Context, k *fence.Keys, owner bool, wrong []string, end string) error {
	_, err := t.nodes.TxPipelined(ctx, func(p redis.Pipeliner) error {
		switch {
		case len(wrong) == 0:
		case end == "":
			p.Del(ctx, k.Stream)
		default:
			p.XDel(ctx, k.Stream, wrong...)
			p.Do(ctx, "XSETID", k.Stream, end)
		}
		if owner || len(wrong) > 0 { // the hash of an owner that is gone names what was deleted
			p.Del(ctx, k.Owner)
		}
		return nil
	})
	if err == nil {
		fmt.Fprintln(t.out, "repaired; the next tile server that runs the tile claims it above what is left")
	}
	return err
}
