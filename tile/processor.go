package tile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// ErrSuperseded means: another processor owns the tile. Run ends with a *SupersededError, which is information
// more than failure: the loser has redirected everybody it held and wrote nothing more.
var ErrSuperseded = errors.New("superseded")

// SupersededError names the successor.
type SupersededError struct {
	Tile      fence.TileID
	Held      fence.Epoch // this processor's epoch
	Successor fence.Owner // its epoch and contact; the contact is empty if only the authority knew of it
}

func (e *SupersededError) Error() string {
	return fmt.Sprintf("tile %s: epoch %d %v by epoch %d at %s", e.Tile, e.Held, ErrSuperseded, e.Successor.Epoch, e.Successor.Contact)
}

// Is matches ErrSuperseded.
func (e *SupersededError) Is(target error) bool { return target == ErrSuperseded }

// ErrAlreadyRun means: a TileProcessor runs once. Make a new one to run the tile again.
var ErrAlreadyRun = errors.New("tile processor was already run")

// TileProcessor owns one tile: it claims an epoch, replays what was committed before, and then ticks,
// committing each tick's batch under its epoch until it is drained or superseded. With Config.Follow it first
// follows what another owner commits, and claims the tile when there is a reason to.
//
// Run does the work in its own goroutine; every other method is safe to call from any goroutine at any
// time. See the package comment for the guarantees.
type TileProcessor struct {
	tile    fence.TileID
	contact string
	seams   Seams
	rules   Rules
	cfg     Config

	superseded chan struct{}   // closed on stand-down
	done       chan struct{}   // closed when Run has answered everybody
	takeOver   chan Suspicion  // capacity 1
	inspect    chan inspection // work for the loop between ticks
	drains     chan drainRequest
	snapshots  chan snapshotResult // at most one snapshot is being saved
	saving     bool                // loop only: one is
	beside     sync.WaitGroup      // goroutines that ask somebody something beside the loop

	commit  fence.CommitFn // Config.Commit, and the journal behind it if the tile writes through
	through *writeThrough  // nil unless it does

	mu     sync.Mutex // guards what follows
	status Status
	queue  []submission
	ran    bool

	// The loop's own state.
	grant    fence.Grant
	floor    fence.Epoch // the highest epoch seen anywhere
	position fence.Position
	tick     fence.Tick
	actions  actionMemory
	pending  *pendingBatch
	kept     keptBatches
	memory   streamMemory
	orphaned int // boots that found no history
	stales   int // refusals as stale in a row that the authority contradicts
	lastSnap fence.Position
	lastTick fence.Tick // of the last snapshot
	heat     heat

	settledTick fence.Tick // the last that the store knows of: committed or refreshed
	lastSeen    fence.Tick // the highest in an owner hash before this owner's
	confirm     bool       // the next commit must be confirmed by every replica
	confirmed   bool       // the last one was
	forgetting  bool       // batches were forgotten since all were confirmed
	full        bool       // no new action can be remembered, and that was said
	gameBytes   int        // of the game's state in the last snapshot that was read or written
	rejoining   bool       // the state is being replaced by a history that was read

	// A follower's.
	watch   watch
	warm    bool // the state is one that the stream has been in
	damaged bool // the history could not be read, and that was said
	timing  timing
}

// submission is one intent waiting for its outcome.
type submission struct {
	intent    Intent
	answer    chan<- answer // capacity 1
	presented bool          // the intent, or one with its ActionID, has been part of a batch shown to the store
}

type answer struct {
	outcome stream.Outcome
	err     error
}

// New makes a processor for a tile. contact is the address at which it takes intents, told to whoever is
// redirected here: 1 to 255 bytes. The rules must not be used by anybody else while Run runs. A nil cfg
// means the defaults. New does no I/O and starts nothing; a *fence.ArgumentError names a bad argument.
func New(id fence.TileID, contact string, seams Seams, rules Rules, cfg *Config) (*TileProcessor, error) {
	c, err := cfg.withDefaults(seams)
	if err != nil {
		return nil, err
	}
	switch {
	case id == 0:
		return nil, &fence.ArgumentError{Field: "tile", Value: id, Want: "an H3 index, not zero"}
	case contact == "" || len(contact) > fence.MaxContact:
		return nil, &fence.ArgumentError{Field: "contact", Value: contact, Want: "this server's address, 1 to 255 bytes"}
	case rules == nil:
		return nil, &fence.ArgumentError{Field: "rules", Value: rules, Want: "the game's rules"}
	}
	p := &TileProcessor{tile: id, contact: contact, seams: seams, rules: rules, cfg: c,
		superseded: make(chan struct{}), done: make(chan struct{}), takeOver: make(chan Suspicion, 1), inspect: make(chan inspection),
		drains:    make(chan drainRequest),
		snapshots: make(chan snapshotResult, 1)}
	p.commit = c.Commit
	if c.Durability == WriteThrough {
		p.through = &writeThrough{store: c.Commit, journal: c.Journal, timeout: c.JournalTimeout}
		p.commit = p.through.commit
	}
	p.status = Status{Tile: id, State: Idle, Contact: contact, Since: time.Now(), Durability: c.Durability}
	p.actions.keep = c.rememberTicks()
	p.kept.limit, p.kept.limitBytes = c.KeepBatches, c.KeepBytes
	p.memory.limit = c.MaxStreamBytes
	return p, nil
}

// Run claims the tile and runs it until ctx ends or another processor takes over. It owns every
// goroutine it starts and returns when all have ended and every waiting Submit has been answered. The answers
// come first: a snapshot still being saved delays Run's return, by DrainTimeout at most, and no redirect.
//
// When ctx ends, Run drains: it finishes the tick, saves a snapshot, releases the tile and returns nil; a
// follower just returns nil. So it does after a hand-over (Drain). Otherwise it returns a *SupersededError; a *fence.LostError if the tile is held and Config.TakeOver is
// not set; a *fence.StoreError or *fence.UnconfirmedError if a back end or a replica stayed unreachable for
// BootTimeout before the tile served;
// a *fence.CorruptError or *stream.GapError if the stored history cannot be replayed (restore it from
// the checkpoint); an error of the Rules; or ErrAlreadyRun. Once serving, an unreachable back end freezes
// the tile and never ends Run. While it follows, nothing of all this ends Run: a take-over that fails sends the
// processor back to following.
func (p *TileProcessor) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.ran {
		p.mu.Unlock()
		return ErrAlreadyRun
	}
	p.ran = true
	p.mu.Unlock()
	var err error
	if p.cfg.Follow {
		err = p.liveAsFollower(ctx)
	} else {
		err = p.boot(ctx, false)
	}
	if err == nil {
		err = p.serve(ctx)
	}
	p.finish(err)
	// Nobody is kept waiting for an answer while a store that hangs is given up.
	if p.saving {
		<-p.snapshots
	}
	p.beside.Wait()
	if errors.Is(err, errDrained) || errors.Is(err, errHandedOver) {
		return nil
	}
	return err
}

// errDrained ends boot and serve when the context did.
var errDrained = errors.New("drained")

// finish answers everybody who still waits, and everybody who comes later.
func (p *TileProcessor) finish(err error) {
	var sup *SupersededError
	var handed *handedOver
	if errors.As(err, &handed) {
		p.mu.Lock()
		p.status.Successor = handed.successor
		p.mu.Unlock()
	}
	if errors.As(err, &sup) {
		p.mu.Lock()
		p.status.Successor = sup.Successor
		p.mu.Unlock()
		p.transition(StoodDown)
		close(p.superseded)
	} else {
		p.transition(Stopped)
	}
	p.unresolve()
	p.mu.Lock()
	queue := p.queue
	p.queue = nil
	close(p.done)
	p.mu.Unlock()
	for _, s := range queue {
		if s.presented {
			s.answer <- answer{err: p.unresolved()}
		} else {
			s.answer <- answer{err: p.redirect()}
		}
	}
}

// Submit queues an intent and waits for its outcome, which comes with the commit of the tick that
// resolved it. It may be called before Run has finished booting. A follower answers with a *RedirectError to
// the owner it last saw.
//
// Errors means: *fence.ArgumentError; ErrOverloaded when the queue is full or no more actions can be remembered (nothing was decided); a
// *RedirectError when this processor does not own the tile (the intent was never presented to the store
// and never will be); an *UnresolvedError when ownership changed while the intent was being committed;
// ctx's error, after which the intent may still be resolved. After the last two an action is retried
// with the same ActionID, which gives its one outcome.
func (p *TileProcessor) Submit(ctx context.Context, in Intent) (stream.Outcome, error) {
	if err := in.Validate(); err != nil {
		return 0, err
	}
	return p.submit(ctx, in)
}

// submit queues an intent that was validated where it came in.
func (p *TileProcessor) submit(ctx context.Context, in Intent) (stream.Outcome, error) {
	if in.Tile != p.tile {
		return 0, &fence.ArgumentError{Field: "tile", Value: in.Tile, Want: "the tile this processor runs, " + p.tile.String()}
	}
	c := make(chan answer, 1)
	p.mu.Lock()
	select {
	case <-p.done:
		p.mu.Unlock()
		return 0, p.redirect()
	default:
	}
	if p.silent() {
		p.mu.Unlock()
		return 0, p.redirect()
	}
	if len(p.queue) >= p.cfg.QueueLimit {
		p.mu.Unlock()
		return 0, ErrOverloaded
	}
	p.queue = append(p.queue, submission{intent: in, answer: c})
	p.mu.Unlock()
	select {
	case a := <-c:
		return a.outcome, a.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// Superseded is closed when the processor stands down because another owns the tile.
func (p *TileProcessor) Superseded() <-chan struct{} { return p.superseded }

// silent reports whether this processor answers nothing: a follower, or an owner that yields. p.mu is held.
func (p *TileProcessor) silent() bool {
	return p.status.Owner.Epoch > p.status.Epoch || p.status.State == Following || p.status.State == Idle && p.cfg.Follow
}

// inspection is a call of Inspect.
type inspection struct {
	f    func(Rules, fence.Position)
	done chan error // capacity 1
}

// Inspect runs f on the tick loop, between ticks, so that it may read the rules. It returns ctx's error
// if the loop did not get to it, and a *RedirectError once the processor has ended. A follower refuses it in the
// same way: its state is the owner's of a moment ago, and nobody's truth.
func (p *TileProcessor) Inspect(ctx context.Context, f func(Rules, fence.Position)) error {
	p.mu.Lock()
	silent := p.silent()
	p.mu.Unlock()
	if silent {
		return p.redirect()
	}
	i := inspection{f: f, done: make(chan error, 1)}
	select {
	case p.inspect <- i:
		return <-i.done
	case <-p.done:
		return p.redirect()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// inspected runs an inspection.
func (p *TileProcessor) inspected(i inspection) {
	i.f(p.rules, p.position)
	i.done <- nil
}

// redirect is what a processor that does not own the tile answers: the owner as far as it knows, never itself.
func (p *TileProcessor) redirect() error {
	s := p.Status()
	o := s.Successor
	if o.Contact == "" {
		o = s.Owner
	}
	if o.Contact == p.contact {
		return &RedirectError{Tile: p.tile}
	}
	return &RedirectError{Tile: p.tile, Epoch: o.Epoch, Contact: o.Contact}
}

// unresolved is what it answers when it cannot say whether an intent was committed.
func (p *TileProcessor) unresolved() error {
	s := p.Status().Successor
	return &UnresolvedError{Tile: p.tile, Epoch: s.Epoch, Contact: s.Contact}
}
