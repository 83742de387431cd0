//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/faultinject/serverfault"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/tile"
)

// ended gives the state that a tile's owner holds, where the stream ends and the watchers are too.
func (r *run) ended(ctx context.Context, id fence.TileID) (heldState, error) {
	last, err := r.Log.Last(ctx, id)
	if err != nil {
		return heldState{}, err
	}
	w := r.supervisor.where(id)
	if w == nil {
		return heldState{}, fmt.Errorf("tile %s has no owner", id)
	}
	answer, err := r.control.tell(ctx, w.orders, order{Inspect: id})
	if err == nil && answer.Held.Position != last {
		err = fmt.Errorf("tile %s ends at %s, its owner %s is at %s", id, last, w.name, answer.Held.Position)
	}
	if n := answer.Held.UnderWay; err == nil && n > 0 && !r.Fault.loses {
		err = fmt.Errorf("tile %s: %d travellers are under way", id, n)
	}
	for _, w := range r.observers.watchers {
		if at, _ := w.At(id); at != last {
			err = errors.Join(err, fmt.Errorf("tile %s ends at %s, %s is at %s", id, last, w.Name, at))
		}
	}
	return answer.Held, err
}

// ending is how a tile ended, as its owner and the stores have it.
type ending struct {
	held  heldState
	final history.FinalTile
}

// recordFinal records how everything ended. The workers are paused meanwhile: a take-over that was still under
// way would change what has just been recorded.
func (r *run) recordFinal(ctx context.Context) error {
	endings := map[fence.TileID]*ending{}
	if err := serverfault.Await(ctx, r.cfg.ServeWithin, "reading how everything ended",
		func() error { return r.readEndings(ctx, endings) }); err != nil {
		return err
	}
	for _, id := range r.tiles {
		e := endings[id]
		r.recorder.Held("owner", id, e.held.Position, e.held.Digest)
		for _, w := range r.observers.watchers {
			at, digest := w.At(id)
			r.recorder.Held(w.Name, id, at, digest)
			if err := w.Err(); err != nil {
				return fmt.Errorf("%s: %w", w.Name, err)
			}
		}
		e.final.Class = classOf(id).String()
		e.final.Kept = classOf(id) != tile.Checkpointed && !r.Fault.loses
		switch {
		case r.Fault.loses:
			e.final.Here, e.final.Coins = nil, 0
		case e.final.Begun || r.Fault == unbroken:
			e.final.Born = game.TravelAmong(r.tiles, id, r.travellers()).Born
			e.final.Given = game.Coins * len(e.final.Born)
		}
		r.recorder.Final(id, e.final)
	}
	return nil
}

// readEndings reads all tiles while nothing moves. On nil the workers stay paused; otherwise they go on.
func (r *run) readEndings(ctx context.Context, endings map[fence.TileID]*ending) (err error) {
	if err := r.supervisor.serving(); err != nil {
		return err
	}
	stuck := 0
	for _, id := range r.tiles {
		e := &ending{}
		var err1 error
		e.held, err1 = r.ended(ctx, id)
		err, stuck = errors.Join(err, err1), stuck+e.held.UnderWay
		endings[id] = e
	}
	if r.Census != nil {
		r.Census.UnderWay = stuck
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.signalWorkers(devstack.GoOn))
		}
	}()
	if err := r.signalWorkers(devstack.Pause); err != nil {
		return err
	}
	time.Sleep(tick) // what they sent before may be on its way
	for id, e := range endings {
		if e.final, err = game.ReadFinal(ctx, r.seams(), id); err != nil {
			return err
		}
		if e.final.End != history.Position(e.held.Position) || e.final.Row.Epoch > e.final.Owner.Epoch {
			return fmt.Errorf("tile %s has moved from %s to %s, epoch %d is minted", id, e.held.Position, e.final.End,
				e.final.Row.Epoch)
		}
	}
	return nil
}
