//go:build unix

package campaign

import (
	"context"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

// forgedFaults say what is not so: numbers that others than the tiles' owners have written where all can write.
func forgedFaults() []*Fault {
	return []*Fault{
		{Name: "frames-forged",
			About: "frames that follow the tiles' heads, under epochs that the authority has not granted, are " +
				"published on fan-out",
			hold: seconds(0.2, 2), moves: true, single: true, inject: forgeFrames},
		{Name: "ticks-raised",
			About: "the ticks of all owner hashes are raised by a million or as far as a number goes, several times",
			hold:  seconds(0.2, 2), moves: true, single: true, inject: raiseTicks},
		{Name: "marks-raised",
			About: "the epochs that consumers have handed on are raised, and their marks as far as a number goes",
			hold:  seconds(0.2, 2), moves: true, single: true, inject: raiseMarks},
	}
}

// forgeFrames publishes, as a stranger who reaches the fan-out may, installs whose chain is right.
func forgeFrames(ctx context.Context, r *run, _ victim) error {
	r.damage.Hit(fmt.Sprintf("%d tiles", len(r.tiles)), nil)
	for range 10 + r.rng.IntN(40) {
		id := r.tile()
		at, err := r.Log.Last(ctx, id)
		if err != nil {
			return err
		}
		epoch := []fence.Epoch{at.Epoch + 1, at.Epoch + 1000, fence.MaxNumber}[r.rng.IntN(3)]
		c := fence.Commit{Tile: id, Epoch: epoch, Contact: "stranger", Prev: at, Payload: []byte("forged"),
			Install: true}
		entry := c.Entry()
		if r.rng.IntN(4) == 0 {
			rebase := fence.Rebase{Tile: id, Epoch: epoch, Contact: "stranger", Seq: at.Seq + fence.RebaseJump}
			entry = rebase.Entry()
		}
		frames := []fanout.Message{{Tile: id, Data: entry.Frame}}
		if _, err := r.Fanout.Publish(ctx, frames); err != nil {
			return err
		}
		time.Sleep(time.Duration(r.rng.Int64N(int64(tick))))
	}
	return nil
}

func raiseTicks(ctx context.Context, r *run, _ victim) error {
	r.damage.Hit(fmt.Sprintf("%d tiles", len(r.tiles)), nil)
	for range 1 + r.rng.IntN(5) {
		for _, id := range r.tiles {
			o, err := r.Store.Owner(ctx, id)
			if err != nil {
				return err
			}
			raised := []uint64{uint64(o.Tick) + 1_000_000, 1 << 44, fence.MaxNumber}[r.rng.IntN(3)]
			err = r.cluster.Client.HSet(ctx, fence.KeysOf(id).Owner, "tick", raised).Err()
			if err != nil {
				return err
			}
		}
		time.Sleep(time.Duration(r.rng.Int64N(int64(10 * tick))))
	}
	return nil
}

func raiseMarks(ctx context.Context, r *run, _ victim) error {
	r.damage.Hit(fmt.Sprintf("%d tiles", len(r.tiles)), nil)
	marks := map[fence.TileID][]any{}
	for _, id := range r.tiles {
		o, err := r.Store.Owner(ctx, id)
		if err != nil {
			return err
		}
		shown := []fence.Epoch{o.Epoch + 1, o.Epoch + 1000, fence.MaxNumber}[r.rng.IntN(3)]
		marks[id] = []any{"shown", uint64(shown), "bridge", uint64(fence.MaxNumber),
			"checkpoint", uint64(fence.MaxNumber)}
	}
	for id, fields := range marks {
		if err := r.cluster.Client.HSet(ctx, fence.KeysOf(id).Marks, fields...).Err(); err != nil {
			return err
		}
	}
	return nil
}
