package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Submit hands an intent to the owner of its tile in this process: tilehost.Host.Submit, or tile.TileProcessor.Submit.
type Submit func(context.Context, tile.Intent) (tile.Result, error)

// Desk is where the tiles that a process owns leave requests and get their plans. It makes at most one round trip a
// tick for each tile that has something outstanding, and turns plans into intents. A tile that ticks more often than
// twice a second makes one each 450 ms, more often if its plans take less than 4.5 s, each 100 ms while a player waits
// for one, and at once when a player asks.
type Desk struct {
	store  Store
	submit Submit
	log    *slog.Logger
	ran    atomic.Bool

	mu     sync.Mutex
	ended  bool // Run has, or will soon: no plan is submitted any more
	tiles  map[fence.TileID]*deskTile
	shards []deskShard
	stats  DeskStats

	submitting sync.WaitGroup
}

// deskShard is the tiles of one shard that are due for a turn.
type deskShard struct {
	due  map[fence.TileID]bool
	wake chan struct{} // capacity 1
}

// turnTimeout bounds one round trip of a desk. A shard that hangs delays the tiles of other shards not at all.
const turnTimeout = time.Second

// DeskStats is what a Desk has done since it was made, and what is outstanding now.
type DeskStats struct {
	Outstanding int // entities that wait for a plan, or whose plan is being decided on

	Asked     uint64 // requests that the store took
	Turns     uint64 // turns of a tile that were answered
	TurnsLost uint64 // turns of a tile that failed, and were made again with the next tick
	Full      uint64 // requests not taken: the tile had MaxOutstanding, or the requester MaxOfRequester
	Applied   uint64 // plans that the rules accepted
	Refused   uint64 // plans that the rules did not accept: the entity is dead, or the state has changed
	Undecided uint64 // plans that the tile could not decide on: it moved, or stalled
	Discarded uint64
	Died      uint64
	Expired   uint64
	Stale     uint64 // answers of an older epoch
	Unknown   uint64 // answers to a request that this desk did not know
	Missing   uint64 // requests that the store has lost
}

// NewDesk returns the desk of the process that submit hands intents to. It does no I/O. The logger receives failures;
// nil means slog.Default(). A *fence.ArgumentError names what is missing.
func NewDesk(store Store, submit Submit, log *slog.Logger) (*Desk, error) {
	if err := checkStore(store); err != nil {
		return nil, err
	}
	if submit == nil {
		return nil, &fence.ArgumentError{Field: "submit", Value: "nil", Want: "the tile host's Submit"}
	}
	d := &Desk{store: store, submit: submit, log: cmp.Or(log, slog.Default()), tiles: map[fence.TileID]*deskTile{},
		shards: make([]deskShard, store.Shards())}
	for i := range d.shards {
		d.shards[i] = deskShard{due: map[fence.TileID]bool{}, wake: make(chan struct{}, 1)}
	}
	return d, nil
}

// Hooks adds the desk's to a tile's hooks, which it calls first: the desk learns from Transition who owns a tile, and
// from Ticked when a turn is due. Give them to every tile of the process.
func (d *Desk) Hooks(h tile.Hooks) tile.Hooks {
	transition, ticked := h.Transition, h.Ticked
	h.Transition = func(i tile.TransitionInfo) {
		if transition != nil {
			transition(i)
		}
		d.transition(i)
	}
	h.Ticked = func(i tile.TickInfo) {
		if ticked != nil {
			ticked(i)
		}
		d.ticked(i.Tile)
	}
	return h
}

func (d *Desk) transition(i tile.TransitionInfo) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tiles[i.Tile]
	switch {
	case i.To == tile.Serving && (t == nil || t.epoch < i.Epoch):
		d.tiles[i.Tile] = newDeskTile(i.Tile, i.Epoch)
	case i.To == tile.StoodDown || i.To == tile.Stopped || i.To == tile.Following:
		delete(d.tiles, i.Tile)
	}
}

func (d *Desk) ticked(id fence.TileID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tiles[id]
	if t == nil || !t.due(time.Now()) {
		return
	}
	s := &d.shards[ShardOf(id, len(d.shards))]
	s.due[id] = true
	wait.Wake(s.wake)
}

// Ask leaves a request; it returns at once and does no I/O. asked is false if the entity waits for a plan already, if
// the tile has MaxOutstanding or the requester MaxOfRequester entities that wait, or if this process does not serve
// the tile: call it again in a later tick, with what is then true. A player's request is kept while another one of the
// entity is in flight, the latest of them, and is sent as soon as it can be. The error is a *fence.ArgumentError.
//
// Ask may be called from anywhere, Rules.Resolve included.
func (d *Desk) Ask(r Request) (asked bool, err error) {
	if err := r.Validate(); err != nil {
		return false, err
	}
	r.ID, r.Epoch, r.Attempt, r.Age, r.Running = "", 0, 0, 0, false
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tiles[r.Tile]; t != nil {
		return t.ask(r, &d.stats), nil
	}
	return false, nil
}

// Waiting are the requests of a tile that this process serves: what its entities wait for, the oldest first. Age counts
// from when the desk was asked, or learned of the request.
func (d *Desk) Waiting(id fence.TileID) []Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tiles[id]
	if t == nil {
		return nil
	}
	all := make([]Request, 0, len(t.entities))
	for _, e := range t.entities {
		r := e.request
		r.Age = time.Since(e.since)
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Request) int { return int(b.Age - a.Age) })
	return all
}

// Tiles are the tiles that the desk serves, in no order.
func (d *Desk) Tiles() []fence.TileID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.tiles))
}

// Stats returns the counters, all of one moment.
func (d *Desk) Stats() DeskStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	for _, t := range d.tiles {
		s.Outstanding += len(t.entities)
	}
	return s
}

// Run makes the tiles' turns until ctx ends, and returns nil when every plan that was being decided on has its outcome.
// Stop it after the tiles. Requests in flight stay in the store, for their tiles' next owners. The other error is
// fence.ErrAlreadyRun.
func (d *Desk) Run(ctx context.Context) error {
	if d.ran.Swap(true) {
		return fmt.Errorf("plan: desk: %w", fence.ErrAlreadyRun)
	}
	var loops sync.WaitGroup
	for shard := range d.shards {
		loops.Go(func() { d.serve(ctx, shard) })
	}
	loops.Wait()
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.submitting.Wait()
	return nil
}

// serve makes the turns of one shard, all that are due in one round trip; the next ones gather meanwhile.
func (d *Desk) serve(ctx context.Context, shard int) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.shards[shard].wake:
		}
		turns := d.gather(shard)
		if len(turns) == 0 {
			continue
		}
		call, cancel := context.WithTimeout(ctx, turnTimeout)
		replies := d.store.Turn(call, shard, turns)
		cancel()
		if ctx.Err() != nil {
			return
		}
		d.settle(ctx, turns, replies)
	}
}

// gather takes the turns that are due. The lock is held for one tile at a time, here and in settle: ticks wait for it.
func (d *Desk) gather(shard int) []Turn {
	d.mu.Lock()
	due := slices.Collect(maps.Keys(d.shards[shard].due))
	clear(d.shards[shard].due)
	d.mu.Unlock()
	turns, now := make([]Turn, 0, len(due)), time.Now()
	for _, id := range due {
		d.mu.Lock()
		if t := d.tiles[id]; t != nil && t.due(now) {
			turns = append(turns, t.turn(now))
		}
		d.mu.Unlock()
	}
	return turns
}

// settle reads the replies, and submits the plans among them.
func (d *Desk) settle(ctx context.Context, turns []Turn, replies []TurnReply) {
	var failed error
	for i := range turns {
		if err := d.settleOne(ctx, &turns[i], &replies[i]); err != nil {
			failed = err
		}
	}
	if failed != nil {
		d.log.Warn("plan: turns failed: the next tick makes them again", "tiles", len(turns), "error", failed)
	}
}

// settleOne reads the reply to a tile's turn. The error is the turn's, if it is to be made again.
func (d *Desk) settleOne(ctx context.Context, turn *Turn, r *TurnReply) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tiles[turn.Tile]
	switch {
	case t == nil || t.epoch != turn.Epoch:
		return nil // the tile has moved on meanwhile
	case errors.Is(r.Err, fence.ErrStale):
		// A later owner has had a turn. This one notices with its next commit.
		delete(d.tiles, t.id)
		return nil
	case r.Err != nil:
		d.stats.TurnsLost++
		return r.Err
	}
	d.stats.Turns++
	for _, a := range t.settle(turn, r, &d.stats) {
		d.answered(ctx, t, a)
	}
	return nil
}

// answered is called for each answer that is news. d.mu is held.
func (d *Desk) answered(ctx context.Context, t *deskTile, a *answered) {
	if a.kind != Planned {
		t.free(a.request.Entity, &d.stats)
		return
	}
	if d.ended {
		return
	}
	d.submitting.Go(func() {
		outcome, err := d.decide(ctx, t, a)
		d.mu.Lock()
		t.free(a.request.Entity, &d.stats)
		switch {
		case err != nil:
			d.stats.Undecided++
		case outcome == stream.Applied:
			d.stats.Applied++
		default:
			d.stats.Refused++
		}
		d.mu.Unlock()
	})
}

// A plan is submitted again, if the tile could not take it or answered without outcome, after a random pause that
// doubles with each try: a tile that is overloaded has thousands of them.
const (
	retryAfter = 100 * time.Millisecond
	retryMost  = 3 * time.Second
)

// decide submits a plan until the tile has decided on it, or does not serve any longer, or the plan is too old. The
// action ID makes repetitions harmless.
func (d *Desk) decide(ctx context.Context, t *deskTile, a *answered) (stream.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), AnswerTTL)
	defer cancel()
	in := tile.Intent{Tile: t.id, ActionID: "plan-" + a.request.ID, Actor: a.request.Entity, Body: a.body,
		Origin: tile.OriginServer}
	for try := 1; ; try++ {
		r, err := d.submit(ctx, in)
		again := errors.Is(err, tile.ErrOverloaded) || errors.Is(err, tile.ErrUnresolved)
		if err == nil || !again || !d.serves(t) {
			return r.Outcome, err
		}
		if !wait.For(ctx, wait.Backoff(retryAfter, retryMost, try)) {
			return 0, err
		}
	}
}

// serves reports whether this process still owns the tile under the same epoch.
func (d *Desk) serves(t *deskTile) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tiles[t.id] == t
}
