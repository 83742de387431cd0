package tile

import (
	"cmp"
	"context"
	"errors"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/tile/internal/history"
)

// TileProcessor owns one tile: it claims an epoch, replays what was committed before, and then ticks,
// committing each tick's batch under its epoch until it is drained or superseded. With Config.Follow it first
// follows what another owner commits, and claims the tile when there is a reason to.
//
// Run does the work in its own goroutine; every other method is safe to call from any goroutine at any
// time. See the package comment for the guarantees.
type TileProcessor struct {
	*base
	ownership   *ownership
	acquisition *acquisition
	follower    *tileFollower
	owner       *tileOwner
}

// New makes a processor for a tile. contact is the address at which it takes intents, given to clients that are
// redirected here: 1 to 255 bytes. The rules are the processor's alone while Run runs. A nil cfg
// means the defaults. New does no I/O and starts nothing; a *fence.ArgumentError names a bad argument.
func New(id fence.TileID, contact string, seams Seams, rules Rules, cfg *Config) (*TileProcessor, error) {
	c, err := cfg.WithDefaults(seams)
	if err != nil {
		return nil, err
	}
	switch {
	case id == 0:
		return nil, errNoTile
	case contact == "" || len(contact) > fence.MaxContact:
		return nil, &fence.ArgumentError{Field: "contact", Value: contact,
			Want: "this server's address, 1 to 255 bytes"}
	case rules == nil:
		return nil, &fence.ArgumentError{Field: "rules", Value: rules, Want: "the game's rules"}
	}
	if seams.Rims == nil {
		seams.Rims = NewRims(seams.Log)
	}
	c.Logger = c.Logger.With("tile", id)
	guard := &guarded{rules: rules, tile: id}
	guard.travels, _ = rules.(TransferRules)
	all := &base{tile: id, contact: contact, seams: seams, rules: rules, guard: guard, cfg: &c,
		inbox: newInbox(id, contact, &c), history: history.New(id, guard, c.rememberTicks(), c.MaxStreamBytes),
		failures: sampled.Logger(c.Logger), reminder: sampled.Reminder(c.Logger)}
	border := newBorder(all)
	all.behind = &writeBehind{base: all, reached: border.journaled}
	all.replays = newReplayWatch(id, &c, all.inbox)
	all.history.Watch, all.history.Actions.Interval = all.replays, c.TickInterval
	right := &ownership{base: all}
	acquire := &acquisition{base: all, ownership: right, durable: newDurable(id, &seams, &c)}
	owner := &tileOwner{base: all, ownership: right, acquisition: acquire, kept: history.Kept{Limit: c.KeepBytes},
		heartbeat: newHeartbeat(all), resolver: resolver{base: all}, border: border, offered: &transfer.Offer{},
		dilation:    dilation{base: all},
		snapshots:   &snapshots{base: all, results: make(chan snapshotResult, 1)},
		recordCheck: &recordCheck{base: all, ownership: right, answers: make(chan looked, 1)}}
	if d, ok := rules.(Dilatable); ok && c.MaxDilation > 1 {
		guard.announce = func() []byte { return owner.dilation.announcement(d) }
	}
	return &TileProcessor{base: all, ownership: right, acquisition: acquire,
		owner: owner, follower: &tileFollower{
			base: all, ownership: right, acquisition: acquire, suspector: &suspector{base: all}}}, nil
}

// Run claims the tile and runs it until ctx ends or another processor takes over. It owns every
// goroutine it starts and returns when all have ended and every waiting Submit has been answered. The answers
// come first: a snapshot still being saved delays Run's return, by DrainTimeout at most, and no redirect.
//
// When ctx ends, Run drains: it finishes the tick, saves a snapshot, releases the tile and returns nil, or an
// *UnreleasedError if a back end did not answer within DrainTimeout; a follower just returns nil. So it does after a
// hand-over (Drain). Otherwise it returns a *SupersededError; a
// *fence.LostError if the tile is held and Config.TakeOver is not set; a *fence.StoreError or *fence.UnconfirmedError
// if a back end or a replica stayed unreachable for BootTimeout before the tile served; a *fence.CorruptError or
// *stream.GapError if the stored history cannot be replayed (restore it from the checkpoint); a *RulesError;
// a *QuarantinedError; or fence.ErrAlreadyRun. Once serving, an unreachable back end freezes the tile and never ends
// Run. While it follows, none of these ends Run but a *QuarantinedError: after a take-over that fails the processor
// follows again.
func (p *TileProcessor) Run(ctx context.Context) error {
	if !p.inbox.begin() {
		return fence.ErrAlreadyRun
	}
	p.owner.border.life = ctx
	err := p.acquireWatched(ctx)
	if err == nil {
		err = p.owner.serveWatched(ctx)
	}
	if failed, ok := errors.AsType[*RulesError](err); ok {
		p.rulesFailed(failed)
	}
	p.finish(err)
	p.owner.snapshots.wait()
	p.beside.Wait()
	if errors.Is(err, errDrained) && p.ownership.served && !p.ownership.released {
		right := p.ownership
		return &UnreleasedError{Tile: right.tile, Epoch: right.grant.Epoch, Err: cmp.Or(right.unreleased, err)}
	}
	if errors.Is(err, errDrained) || errors.Is(err, errHandedOver) {
		return nil
	}
	return err
}

// acquireWatched is acquire in a goroutine of its own, which is left behind if the rules do not return.
func (p *TileProcessor) acquireWatched(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- p.acquire(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-p.replays.dog.Hung():
		return p.acquisition.quarantineHung(ctx)
	}
}

// acquire returns nil when the processor is Serving.
func (p *TileProcessor) acquire(ctx context.Context) error {
	if !p.cfg.Follow {
		got, err := p.acquisition.run(ctx, fromStore)
		if err != nil && ctx.Err() != nil {
			p.ownership.release(ctx)
			return errDrained
		}
		if err == nil {
			p.owner.begin(got, Serving)
		}
		return err
	}
	got, done, err := p.follower.run(ctx)
	if err != nil {
		return err
	}
	if done != nil {
		defer done()
	}
	p.owner.begin(got, Serving)
	i := p.acquisition.steps
	i.Epoch = p.ownership.grant.Epoch
	p.cfg.Logger.Info("tile taken over", "epoch", i.Epoch, "why", i.Why, "silent", i.Silent, "asked", i.Asked,
		"minted", i.Minted, "replayed", i.Replayed, "installed", i.Installed, "warm", i.Warm)
	hook.Call(p.cfg.Hooks.TookOver, i)
	return nil
}

// finish answers every client that still waits, and every later call.
func (p *TileProcessor) finish(err error) {
	p.owner.border.end()
	p.behind.finish()
	successor := p.owner.successor
	sup, stoodDown := errors.AsType[*SupersededError](err)
	if stoodDown {
		successor = sup.Successor
	}
	var pending []submission
	if p.owner.pending != nil {
		pending = p.owner.pending.submissions
	}
	p.inbox.close(p.ownership.grant.Epoch, successor, stoodDown, pending)
}

// Submit queues an intent and waits for its outcome, which comes with the commit of the tick that
// resolved it. It may be called before Run has finished booting. A follower answers with a *RedirectError to
// the owner it last saw.
//
// Errors: a *fence.ArgumentError; ErrOverloaded when the queue is full, when the actor's place was needed by an actor
// with fewer intents in it, or no more actions can be remembered (nothing was decided); a *CrossedError when the actor
// has left the tile before (nothing was decided); a *RedirectError when this
// processor does not own the tile (the intent was never presented to the store and never will be); an *UnresolvedError
// when ownership changed while the intent was being committed; ctx's error, after which the intent may still be
// resolved. After the last two an action is retried with the same ActionID, which gives its one outcome.
func (p *TileProcessor) Submit(ctx context.Context, in Intent) (Result, error) {
	type answer struct {
		result Result
		err    error
	}
	c := make(chan answer, 1)
	if err := p.Queue(ctx, in, func(r Result, err error) { c <- answer{r, err} }); err != nil {
		return Result{}, err
	}
	select {
	case a := <-c:
		return a.result, a.err
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
}

// Queue is Submit for callers with thousands of intents under way, none of which needs a goroutine. If the intent is
// queued, answered is called with what Submit would have returned, once, by the tick loop or by another call of Queue:
// it must not block, nor call the processor. Otherwise the error says why not. The end of ctx, or of Intent.Deadline,
// says that the caller has gone: an intent that still waits for a tick then is not resolved. What the tick loop has
// taken before is.
func (p *TileProcessor) Queue(ctx context.Context, in Intent, answered func(Result, error)) error {
	if err := in.Validate(); err != nil {
		return err
	}
	if in.Tile != p.tile {
		return &fence.ArgumentError{Field: "tile", Value: in.Tile,
			Want: "the tile this processor runs, " + p.tile.String()}
	}
	return p.inbox.submit(ctx, in, answered)
}

// Present takes what another tile presents, and answers up to where this tile has decided it: when it has decided all,
// and every replica has confirmed that, or after a second. What is undecided then still waits for a tick.
//
// Errors: a *fence.ArgumentError; a *RedirectError when this processor does not own the tile; a *QuarantinedError;
// ErrOverloaded when it does not serve yet, or too much waits here. The transfers may be presented again in any case.
func (p *TileProcessor) Present(ctx context.Context, t Presentation) (Answer, error) {
	if err := t.Validate(); err != nil {
		return Answer{}, err
	}
	if t.To != p.tile {
		return Answer{}, &fence.ArgumentError{Field: "To", Value: t.To,
			Want: "the tile this processor runs, " + p.tile.String()}
	}
	return p.owner.border.present(ctx, &t)
}

// Status reports where the processor is. It may be called at any time, from any goroutine.
func (p *TileProcessor) Status() Status { return p.inbox.read() }

// Superseded is closed when the processor stands down because another owns the tile.
func (p *TileProcessor) Superseded() <-chan struct{} { return p.inbox.superseded }

// Inspect runs f on the tick loop, between ticks, so that it may read the rules. It returns ctx's error
// if the loop did not get to it, a *RulesError if f panics, and a *RedirectError once the processor has ended. A
// follower refuses it in the same way, and so does an owner while it redirects: their state may be behind the owner's.
func (p *TileProcessor) Inspect(ctx context.Context, f func(Rules, fence.Position)) error {
	if err := p.inbox.away(); err != nil {
		return err
	}
	i := inspection{f: f, done: make(chan error, 1)}
	if err := leave(ctx, p.inbox, p.inbox.inspections, i); err != nil {
		return err
	}
	return <-i.done
}

// TakeOver makes a follower claim the tile now; it returns at once. A processor that is no follower, or no
// longer one, ignores it. OwnerDied is looked into first: the tile is claimed when its owner hash has not moved for
// RefreshEvery+1 ticks, or when OwnerLives was not called for two ticks, at least a second.
func (p *TileProcessor) TakeOver(why Suspicion) { p.inbox.takeOvers.order(why) }

// OwnerLives tells a follower that gossip sees a living member at the owner's contact: if TakeOver(OwnerDied) was
// called before, the follower goes by the owner hash alone.
func (p *TileProcessor) OwnerLives() { p.inbox.takeOvers.trust() }

// Drain finishes the tile's work and ends the processor. With a successor it hands the tile over: it plays a last tick,
// confirms it on every replica, and asks the process at successor to take over (Seams.Handover). Intents that arrive
// meanwhile wait; when the successor serves they are redirected to it, so that none is lost. Run then returns nil.
// If the successor does not take the tile, the processor goes on serving, and Drain returns why. An empty successor
// drains as the end of Run's context does: last tick, snapshot, release.
//
// Other errors: a *fence.ArgumentError when the successor is this processor, or there is no
// Seams.Handover; a *RedirectError when this processor does not own the tile; ctx's error, after which
// the hand-over may still happen.
func (p *TileProcessor) Drain(ctx context.Context, successor string) error {
	switch {
	case successor == p.contact, len(successor) > fence.MaxContact:
		return &fence.ArgumentError{Field: "successor", Value: successor,
			Want: "another process's address, at most 255 bytes"}
	case successor != "" && p.seams.Handover == nil:
		return &fence.ArgumentError{Field: "Handover", Value: "nil", Want: "Seams.Handover, to ask the successor with"}
	}
	d := drainCall{successor: successor, answer: make(chan error, 1)}
	if err := leave(ctx, p.inbox, p.inbox.drains, d); err != nil {
		return err
	}
	select {
	case err := <-d.answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.inbox.done: // the loop was left behind, in rules that do not return
	}
	select {
	case err := <-d.answer:
		return err
	default:
		return p.inbox.redirected()
	}
}
