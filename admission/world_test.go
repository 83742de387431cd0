package admission_test

import (
	"context"
	"errors"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// world is one tile, its owner and its owner hash: what a gateway forwards to and routes by. It keeps the
// tile's promise: an action ID is applied once, and every repetition gets the first outcome.
type world struct {
	mu       sync.Mutex
	owner    string // contact; empty: none
	epoch    fence.Epoch
	silent   bool // redirects do not name the owner
	down     bool // no process answers
	applied  map[string]int
	outcomes map[string]stream.Outcome
	calls    int
	last     tile.Intent
	why      string // said with each outcome

	answers     []error // for the next calls, which are not applied; nil gives no outcome
	loseReplies int     // of the next calls, which are applied
	afterApply  func()
}

func newWorld(owner string) *world {
	return &world{owner: owner, epoch: 1, applied: map[string]int{}, outcomes: map[string]stream.Outcome{}}
}

var errReset = errors.New("connection reset")

func (w *world) Forward(_ context.Context, contact string, in tile.Intent) (tile.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	if w.down {
		return tile.Result{}, errReset
	}
	if len(w.answers) > 0 {
		err := w.answers[0]
		w.answers = w.answers[1:]
		if r, ok := errors.AsType[*tile.RedirectError](err); ok && r.Epoch > w.epoch {
			w.owner, w.epoch = r.Contact, r.Epoch // the store has it too
		}
		return tile.Result{}, err
	}
	if contact != w.owner {
		r := &tile.RedirectError{Tile: in.Tile}
		if !w.silent {
			r.Epoch, r.Contact = w.epoch, w.owner
		}
		return tile.Result{}, r
	}
	w.last = in
	o := w.resolve(in.ActionID)
	if w.afterApply != nil {
		w.afterApply()
	}
	if w.loseReplies > 0 {
		w.loseReplies--
		return tile.Result{}, errReset
	}
	return tile.Result{Outcome: o, Why: w.why}, nil
}

func (w *world) resolve(id string) stream.Outcome {
	if id == "" {
		return stream.Applied
	}
	o, again := w.outcomes[id]
	if !again {
		o = stream.Applied
		w.outcomes[id] = o
		w.applied[id]++
	}
	return o
}

// move gives the tile to another owner.
func (w *world) move(owner string, named bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner, w.silent = owner, !named
	w.epoch++
}

func (w *world) Owner(_ context.Context, id fence.TileID) (fence.Owner, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owner == "" {
		return fence.Owner{Tile: id}, nil
	}
	return fence.Owner{Tile: id, Epoch: w.epoch, Contact: w.owner}, nil
}
