package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// maxFruitless is how often a repair is tried again because live frames still do not follow what the
// store answered (a lagging replica, a batch lost in a failover). After that they are forgotten, and the
// periodic comparison decides.
const maxFruitless = 6

// errRaced: the store answered with less than it had said it holds a moment before.
var errRaced = errors.New("the store's history became shorter while it was read")

// errOld: the store's history ends before what the relay has seen, and clients wait for a snapshot that
// is not older.
var errOld = errors.New("the store is behind what the relay has seen")

// repairer brings tiles up to date: it subscribes them to the fan-out and reads from the store what they want. One
// task runs for a tile, and all of them share a limit, so that a thousand clients of one tile cause one read, and a
// thousand tiles a bounded number at once.
type repairer struct {
	sub   fanout.Subscriber
	log   stream.Log
	life  *lifecycle
	cfg   *Config
	count *counters
	tasks chan struct{} // one element for each tile that is brought up to date
	slots chan struct{} // one element for each cold read under way
}

// tasksPerSlot is how many tiles may be brought up to date at once, for each cold read that may be under way: most of
// those that share views wait for what another relay reads, which is no load to the store.
const tasksPerSlot = 8

// start begins the tile's task; false if the relay stops. The hub's mutex is held.
func (r *repairer) start(h *hub) bool { return r.life.spawn(func() { r.task(h) }) }

// task repairs the tile until nothing more is wanted.
func (r *repairer) task(h *hub) {
	defer h.unsubscribe()
	attempt, more := 0, true
	for more {
		if !r.life.sleep(h.pause(attempt)) || !r.enter(r.tasks) {
			h.abandon()
			return
		}
		err := r.repair(h, attempt)
		<-r.tasks
		attempt, more = h.settle(err, attempt)
	}
}

// enter takes one of a bounded number of places; false if the relay stops meanwhile.
func (r *repairer) enter(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-r.life.base.Done():
		return false
	}
}

// pause is how long to wait before an attempt: nothing before the first load, a little before a repair,
// longer and longer after failures; random, so that relays and tiles do not march in step.
func (h *hub) pause(attempt int) time.Duration {
	if attempt == 0 {
		h.mu.Lock()
		loaded := h.view.loaded
		again := h.cfg.earlyPause - time.Since(h.refuted)
		h.mu.Unlock()
		if !loaded {
			return 0
		}
		return max(again, rand.N(h.cfg.repairJitter+1)) // forged frames must not make a tile read all the time
	}
	return wait.Backoff(h.cfg.backoffMin, h.cfg.backoffMax, attempt)
}

// read is one attempt at everything wanted so far.
type read struct {
	number uint64
	want   wants
	loaded bool // the view has been read before
	shared bool // Config.Views is asked first
	floors bool // the marks are read, too
}

// repair makes one attempt. What it could not do is wanted again. The first attempt asks Config.Views, unless the store
// disputes what is here, a client holds more, or a frame is of an epoch that the store has to vouch for.
func (r *repairer) repair(h *hub, attempt int) error {
	subscribed := r.subscribe(h)
	h.mu.Lock()
	h.begun++
	now := read{number: h.begun, want: h.want, loaded: h.view.loaded,
		shared: r.cfg.Views != nil && attempt == 0 && !h.disputed && !h.early && !h.unconfirmed(),
		floors: h.floors}
	h.want, h.early, h.floors = 0, false, false
	closed := h.closed
	h.mu.Unlock()
	if closed {
		return nil
	}
	err := r.read(h, &now)
	marked, read := r.marked(h, &now, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && (!now.loaded || now.want&(wantFull|wantTail) != 0) {
		h.answered = now.number
		if !now.shared {
			h.refute(now.number)
		}
	}
	if read {
		h.claims.marked, h.markedRead = marked, now.number
	}
	if err == nil && subscribed != nil {
		now.want = wantTail // without live frames, look again
	}
	if err = errors.Join(subscribed, err); err != nil {
		h.want |= now.want
	}
	return err
}

// marked reads the highest epoch of the marks of the tile's stream, after a read of the store that contradicts what a
// client names as its floor; ok is false if it was not read.
func (r *repairer) marked(h *hub, now *read, failed error) (epoch fence.Epoch, ok bool) {
	if failed != nil || !now.floors || !r.enter(r.slots) {
		return 0, false
	}
	defer func() { <-r.slots }()
	ctx, cancel := context.WithTimeout(r.life.base, r.cfg.StoreTimeout)
	defer cancel()
	marks, err := r.log.Marks(ctx, []fence.TileID{h.tile})
	if err != nil || marks[0].Err != nil {
		return 0, false
	}
	return marks[0].Shown, true
}

func (r *repairer) read(h *hub, now *read) error {
	readFull, readTail := r.cold(r.readFull), r.cold(r.readTail)
	if now.shared {
		readFull, readTail = r.sharedFull, r.sharedTail
	}
	switch {
	case !now.loaded:
		return r.timed(h, "load", readFull)
	case now.want&wantFull != 0:
		return r.timed(h, "full", readFull)
	case now.want&wantTail != 0:
		err := r.timed(h, "tail", readTail)
		if errors.Is(err, stream.ErrGap) || errors.Is(err, fence.ErrCorrupt) {
			now.want |= wantFull // a snapshot may lie past the gap or the entry that cannot be read
			err = r.timed(h, "full", readFull)
		}
		return err
	case now.want&wantSnapshot != 0:
		return r.timed(h, "snapshot", r.cold(r.readSnapshot))
	}
	return nil
}

// cold makes a read of the store wait for its turn.
func (r *repairer) cold(read func(*hub) (RepairInfo, error)) func(*hub) (RepairInfo, error) {
	return func(h *hub) (RepairInfo, error) {
		if !r.enter(r.slots) {
			return RepairInfo{}, context.Cause(r.life.base)
		}
		defer func() { <-r.slots }()
		return read(h)
	}
}

// timed runs one kind of read and reports it.
func (r *repairer) timed(h *hub, kind string, read func(*hub) (RepairInfo, error)) error {
	start := time.Now()
	info, err := read(h)
	switch {
	case err == nil:
		r.count.repairs.Add(1)
	case kind == "tail" && errors.Is(err, stream.ErrGap): // answered: only the snapshot helps
	case r.life.base.Err() != nil: // the relay stops
	default:
		r.count.repairsFailed.Add(1)
		r.cfg.Logger.Warn("cold read failed", "tile", h.tile, "kind", kind, "error", err)
	}
	info.Tile, info.Kind, info.Took, info.Err = h.tile, kind, time.Since(start), err
	hook.Call(r.cfg.Hooks.Repaired, info)
	return err
}

// subscribe starts the live frames. It comes before any read, so that nothing can fall between the two.
func (r *repairer) subscribe(h *hub) error {
	h.mu.Lock()
	done := h.stop != nil || h.closed
	h.mu.Unlock()
	if done {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.life.base, r.cfg.StoreTimeout)
	defer cancel()
	stop, err := r.sub.Subscribe(ctx, h.tile, h.deliver)
	if err != nil {
		if r.life.base.Err() == nil { // else the relay stops
			r.cfg.Logger.Warn("fan-out subscription failed", "tile", h.tile, "error", err)
		}
		return fmt.Errorf("subscribe to tile %s: %w", h.tile, err)
	}
	h.mu.Lock()
	h.stop = stop // a hub closed meanwhile is stopped when this task ends
	if h.view.loaded {
		h.want |= wantTail // what was committed while there was no subscription
	}
	h.mu.Unlock()
	return nil
}

// readTail reads what follows the present position. stream.ErrGap says that only the snapshot helps.
func (r *repairer) readTail(h *hub) (RepairInfo, error) {
	h.mu.Lock()
	from := h.view.at
	h.mu.Unlock()
	log := &reader{Log: r.log, timeout: r.cfg.StoreTimeout}
	rec := stream.Recovery{Position: from}
	err := stream.Follow(r.life.base, log, h.tile, from, func(e *fence.Entry) error {
		if e.Kind == fence.KindRebase {
			return &stream.GapError{Tile: h.tile, Have: rec.Position, Next: *e}
		}
		rec.Entries = append(rec.Entries, *e)
		rec.Position = e.Position
		return nil
	})
	if err != nil {
		return RepairInfo{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.view.prove(max(rec.Position.Epoch, log.owner.Epoch))
	h.view.setOwner(log.owner)
	info := RepairInfo{Batches: h.take(&rec)}
	h.want &^= wantTail // what was asked for meanwhile is covered, or shows in the held frames
	if log.owner.Present() && h.view.compare(log.owner.Position) == forked {
		h.disputed = true
		return info, &stream.GapError{Tile: h.tile, Have: h.view.at, Next: fence.Entry{Position: log.owner.Position}}
	}
	return info, nil
}

// take accepts the entries that follow and returns how many did; the rest came meanwhile by fan-out.
func (h *hub) take(rec *stream.Recovery) (accepted int) {
	for i := range rec.Entries {
		if h.view.judge(&rec.Entries[i]) == follows {
			h.accept(&batch{Entry: rec.Entries[i].Watched(fence.AreaSet{})})
			accepted++
		}
	}
	h.retryHeld()
	return accepted
}

// readFull reads position, snapshot and tail, in this order: a state read after the position cannot
// honestly end before it.
func (r *repairer) readFull(h *hub) (RepairInfo, error) {
	log := &reader{Log: r.log, timeout: r.cfg.StoreTimeout}
	last, err := log.Last(r.life.base, h.tile)
	if err != nil {
		return RepairInfo{}, err
	}
	rec, err := stream.Recover(r.life.base, log, h.tile)
	if err == nil {
		err = stream.WatchedSnapshot(h.tile, &rec.Snapshot)
	}
	if err != nil {
		return RepairInfo{}, err
	}
	if rec.Position.Seq < last.Seq && rec.Position.Epoch <= last.Epoch {
		return RepairInfo{}, errRaced
	}
	h.mu.Lock()
	disputed := h.disputed
	h.disputed = false
	if disputed && r.cfg.Views != nil {
		h.mu.Unlock()
		r.cfg.Views.Forget(r.life.base, h.tile) // first: a client that joins later must not get it
		h.mu.Lock()
	}
	defer h.mu.Unlock()
	h.shared = false
	h.view.prove(max(rec.Position.Epoch, last.Epoch, log.owner.Epoch))
	return h.adopt(&rec, log.owner)
}

// adopt takes a history read from the store and brings the clients to it.
func (h *hub) adopt(rec *stream.Recovery, owner fence.Owner) (RepairInfo, error) {
	first := !h.view.loaded
	rel := h.view.compare(rec.Position)
	how, news := h.view.adopt(rec, h.graceEnded(rel))
	info := RepairInfo{Batches: len(news)}
	switch how {
	case refused:
		if rel == lower {
			h.count.lowerEpoch.Add(1)
		}
		if !h.view.whole && h.waiting() {
			return info, errOld
		}
		return info, nil // the view has all of it and more
	case extended:
		h.moved()
		for _, b := range news {
			h.broadcast(b)
		}
	case replaced:
		h.moved()
		info.Batches, info.Replaced = len(rec.Entries), !first
		if !first {
			h.count.replaced.Add(1)
		}
		for _, s := range h.subs {
			s.live = false
		}
	case kept:
	}
	if h.view.whole {
		h.want &^= wantTail | wantFull // as after a read of the tail
	}
	h.view.setOwner(owner)
	h.nextRefresh = max(h.cfg.refreshFrames, len(h.view.tail)+h.cfg.refreshFrames/3)
	h.retryHeld()
	h.callDue()
	return info, nil
}

// readSnapshot looks for a newer snapshot and shortens the tail to what follows it.
func (r *repairer) readSnapshot(h *hub) (RepairInfo, error) {
	log := &reader{Log: r.log, timeout: r.cfg.StoreTimeout}
	s, found, err := log.Snapshot(r.life.base, h.tile)
	if err == nil {
		err = stream.WatchedSnapshot(h.tile, &s)
	}
	if err != nil {
		return RepairInfo{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if found && h.view.shorten(s) {
		h.shared = false
		h.moved()
		h.nextRefresh = max(h.cfg.refreshFrames, len(h.view.tail)+h.cfg.refreshFrames/3)
	}
	return RepairInfo{}, nil
}

// settle decides how the task goes on: the number of the next attempt, or no more. Held frames that still
// do not follow mean that the store answered with less than the fan-out has shown: it is asked again, a
// few times.
func (h *hub) settle(err error, attempt int) (next int, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = err != nil
	if attempt >= maxFruitless {
		h.unholdAll()
	}
	if h.early {
		h.want |= wantTail // the client came after what was read
	}
	for _, b := range h.held {
		h.want |= wantTail
		if b.Kind == fence.KindRebase {
			h.want |= wantFull
		}
	}
	switch {
	case h.closed:
		more = false
	case err != nil:
		h.callDue() // reports to clients that hold nothing
		// An outage must not keep a task busy for a tile without watchers: the hub goes soon.
		more = len(h.subs) > 0 || !h.view.loaded
		next = attempt + 1
	case len(h.held) > 0:
		more, next = true, attempt+1
	default:
		more, next = h.want != 0, 0
	}
	if !more {
		h.repairing = false // under the same lock as the decision: the next gap starts a new task
		h.callDue()
	}
	return next, more
}

// waiting reports whether a client waits for a Sync.
func (h *hub) waiting() bool {
	for _, s := range h.subs {
		if !s.live {
			return true
		}
	}
	return false
}

// abandon ends a task because the relay stops.
func (h *hub) abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repairing = false
}

// unsubscribe follows the end of a task: it ends the fan-out subscription of a hub that was dropped meanwhile.
func (h *hub) unsubscribe() {
	h.mu.Lock()
	var stop func()
	if h.closed {
		stop, h.stop = h.stop, nil
	}
	h.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// reader is a Log that bounds each call and remembers the owner hash that came with the last entries.
type reader struct {
	stream.Log
	timeout time.Duration
	owner   fence.Owner
}

func (l *reader) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	chunks, err := l.Log.Read(ctx, cursors)
	if err == nil {
		l.owner = chunks[0].Owner
	}
	return chunks, err
}

func (l *reader) Snapshot(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return l.Log.Snapshot(ctx, tile)
}

func (l *reader) Last(ctx context.Context, tile fence.TileID) (fence.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return l.Log.Last(ctx, tile)
}
