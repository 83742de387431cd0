package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/robustness/check"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// What a run needs before its fault.
const (
	leastAnswers = 8 // of every tile
	leastCommits = 24
)

// run is one fault in one system under load, from its first worker to the verdict.
type run struct {
	*ground
	cfg    Config
	fault  *Fault
	number int
	seed   uint64
	rng    *rand.Rand
	dir    string

	recorder   *history.Recorder
	control    *controller
	tiles      []fence.TileID
	workers    []*workerSlot
	files      []string // histories
	supervisor *supervisor
	traffic    *traffic
	observers  *observers
	damage     damage
	orphans    []fence.TileID // tiles of the owners that the fault silences
}

// ground is what runs share: the servers and the campaign's own connections to them.
type ground struct {
	stack     *devstack.Stack
	network   *network // nil: hosts cannot be parted
	noNetwork error    // why
	cluster   *cluster
	postgres  *devstack.Process
	stores    tile.Seams
	rowsPool  *pgxpool.Pool
	stops     []func() // in the order of their starts
}

// Result is what a run gave.
type Result struct {
	Number     int
	Seed       uint64
	Fault      *Fault
	Target     string
	Skipped    string            // why the fault was not tried
	Err        error             // the run did not come to its end: something hung, or the campaign itself failed
	State      []string          // of every tile, when something hung
	Violations []check.Violation // broken promises
	Dir        string            // of the histories, where they were kept
	Took       time.Duration
	Answers    int // actions answered
	Operations int
	Records    int
	Silence    time.Duration   // the longest time that any tile answered no client, from the fault on
	Detection  []time.Duration // of silenced owners' tiles: from the fault to the first claim
	Takeover   []time.Duration // from the claim to serving
}

// Failed reports whether the run found something.
func (r *Result) Failed() bool { return r.Err != nil || len(r.Violations) > 0 }

// execute runs one run.
func (r *run) execute(ctx context.Context) (result Result) {
	began := time.Now()
	result = Result{Number: r.number, Seed: r.seed, Fault: r.fault, Dir: r.dir}
	if r.fault.parts && r.network == nil && r.noNetwork != nil {
		result.Skipped = r.noNetwork.Error()
		return result
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		result.Err = err
		return result
	}
	faultAt, err := r.play(ctx, &result)
	r.endWorkers()
	if err == nil {
		err = r.judge(&result, faultAt)
	}
	result.Err = err
	result.Took = time.Since(began)
	return result
}

// play sets the system up, breaks and repairs it, and brings it to rest. It returns the time of the fault.
func (r *run) play(ctx context.Context, result *Result) (faultAt int64, err error) {
	if err := r.cluster.awaitHealthy(ctx, 30*time.Second); err != nil {
		return 0, fmt.Errorf("before the run: %w", err)
	}
	file, err := r.newHistory("campaign")
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	r.recorder = history.NewRecorder(fmt.Sprintf("campaign-%d", r.number), file, nil)
	stop, err := r.setUp(ctx)
	defer stop()
	if err != nil {
		return 0, err
	}
	hung := func(err error) (int64, error) {
		result.State = r.supervisor.state()
		return 0, err
	}
	if err := await(ctx, r.cfg.ServeWithin, "every tile serves and answers", func() error {
		return errors.Join(r.supervisor.serving(), r.traffic.enough(leastAnswers, time.Time{}))
	}); err != nil {
		return hung(fmt.Errorf("before the fault: %w", err))
	}
	faultAt, err = r.breakAndMend(ctx, result)
	if err != nil {
		return hung(err)
	}
	repaired := time.Now()
	if err := r.cluster.awaitHealthy(ctx, 40*time.Second); err != nil {
		return hung(fmt.Errorf("after the fault: %w", err))
	}
	if err := await(ctx, r.cfg.ServeWithin, "after the fault: every tile serves and answers again", func() error {
		return errors.Join(r.supervisor.serving(), r.traffic.enough(leastAnswers, repaired))
	}); err != nil {
		return hung(err)
	}
	result.Silence = r.traffic.longest()
	if err := r.rest(ctx); err != nil {
		return hung(err)
	}
	if err := errors.Join(r.quiet(), r.recordFinal(ctx), r.recorder.Err()); err != nil {
		return hung(err)
	}
	return faultAt, nil
}

// setUp starts workers, owners, observers and clients. stop ends what is not a process.
func (r *run) setUp(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	stop = cancel
	if r.tiles, err = r.cluster.drawTiles(ctx, r.rng); err != nil {
		return stop, err
	}
	r.control = newController()
	for i := range workerCount {
		w, err := newWorkerSlot(r.number, i)
		if err != nil {
			return stop, err
		}
		r.workers = append(r.workers, w)
		if err := r.startWorker(ctx, w); err != nil {
			return stop, err
		}
	}
	r.supervisor = &supervisor{control: r.control, workers: r.workers, ids: r.tiles,
		rng: rand.New(rand.NewPCG(r.seed, 1)), takeFrozen: r.fault.frozen || r.rng.IntN(2) == 0,
		followers: r.cfg.Followers || r.rng.IntN(2) == 0, tiles: map[fence.TileID]*placement{}}
	r.supervisor.rebalance.Store(r.fault.moves || r.rng.IntN(3) == 0)
	for i, id := range r.tiles {
		r.supervisor.tiles[id] = &placement{}
		if err := r.supervisor.order(ctx, id, r.workers[i%len(r.workers)]); err != nil {
			return stop, err
		}
	}
	supervised := make(chan struct{})
	go func() { defer close(supervised); r.supervisor.run(ctx) }()
	if r.observers, err = observe(ctx, r.recorder, r.stores, r.tiles, 2); err != nil {
		return func() { cancel(); <-supervised }, err
	}
	forward, err := tilehttp.NewClient(nil)
	if err != nil {
		return stop, err
	}
	r.traffic = newTraffic(r.recorder, forward, r.tiles, func(id fence.TileID) string {
		if w := r.supervisor.where(id); w != nil {
			return w.contact
		}
		return ""
	})
	r.traffic.start(ctx, r.seed, 2)
	return func() {
		cancel()
		<-supervised
		r.traffic.wg.Wait()
		r.observers.stop()
		forward.Close()
		r.control.http.CloseIdleConnections()
	}, nil
}

// breakAndMend injects the fault and removes it.
func (r *run) breakAndMend(ctx context.Context, result *Result) (faultAt int64, err error) {
	info := history.FaultInfo{Name: r.fault.Name, Failover: r.fault.failover}
	v := victim{tile: r.tile()}
	v.owner = r.owner(v.tile)
	if v.shard, err = r.cluster.shardOf(ctx, v.tile); err != nil {
		return 0, err
	}
	faultAt = history.Monotonic()
	r.traffic.watch()
	r.recorder.Fault(info)
	if err = r.fault.inject(ctx, r, v); err == nil {
		select {
		case <-time.After(r.hold()):
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	result.Target = strings.Join(r.damage.targets, " ")
	mend, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Second)
	defer cancel()
	err = errors.Join(err, r.damage.heal(mend))
	info.Over, info.Target = true, result.Target
	r.recorder.Fault(info)
	if err != nil {
		return 0, fmt.Errorf("fault %s on %q: %w", r.fault.Name, result.Target, err)
	}
	return faultAt, nil
}

// hold draws how long the fault lasts.
func (r *run) hold() time.Duration {
	d := time.Duration(r.rng.Int64N(int64(r.fault.hold[1] - r.fault.hold[0])))
	if r.cfg.Brief {
		d = 0
	}
	return r.fault.hold[0] + d
}

// rest ends the traffic and waits until owners and watchers are where the stream ends.
func (r *run) rest(ctx context.Context) error {
	r.supervisor.rebalance.Store(false)
	r.traffic.end()
	return await(ctx, r.cfg.ServeWithin, "all observers hold what was committed last", func() error {
		if err := r.supervisor.serving(); err != nil {
			return err
		}
		for _, id := range r.tiles {
			if _, err := r.ended(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// ended gives the state that a tile's owner holds, where the stream ends and the watchers are too.
func (r *run) ended(ctx context.Context, id fence.TileID) (heldState, error) {
	last, err := r.stores.Log.Last(ctx, id)
	if err != nil {
		return heldState{}, err
	}
	w := r.supervisor.where(id)
	if w == nil {
		return heldState{}, fmt.Errorf("tile %s has no owner", id)
	}
	answer, err := r.control.tell(ctx, w.contact, order{Inspect: id})
	if err == nil && answer.Held.Position != last {
		err = fmt.Errorf("tile %s ends at %s, its owner %s is at %s", id, last, w.name, answer.Held.Position)
	}
	for _, w := range r.observers.watchers {
		if at, _ := w.at(id); at != last {
			err = errors.Join(err, fmt.Errorf("tile %s ends at %s, %s is at %s", id, last, w.name, at))
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
	if err := await(ctx, r.cfg.ServeWithin, "reading how everything ended",
		func() error { return r.readEndings(ctx, endings) }); err != nil {
		return err
	}
	for _, id := range r.tiles {
		e := endings[id]
		r.recorder.Held("owner", id, e.held.Position, e.held.Digest)
		for _, w := range r.observers.watchers {
			at, digest := w.at(id)
			r.recorder.Held(w.name, id, at, digest)
			if err := w.failed(); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
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
	for _, id := range r.tiles {
		e := &ending{}
		if e.held, err = r.ended(ctx, id); err != nil {
			return err
		}
		endings[id] = e
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.signalWorkers(syscall.SIGCONT))
		}
	}()
	if err := r.signalWorkers(syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(tick) // what they sent before may be on its way
	for id, e := range endings {
		if e.final, err = game.ReadFinal(ctx, r.stores, id); err != nil {
			return err
		}
		if e.final.End != history.Position(e.held.Position) || e.final.Row.Epoch > e.final.Owner.Epoch {
			return fmt.Errorf("tile %s has moved from %s to %s, epoch %d is minted", id, e.held.Position, e.final.End,
				e.final.Row.Epoch)
		}
	}
	return nil
}

func (r *run) signalWorkers(sig os.Signal) error {
	var errs []error
	for _, w := range r.workers {
		errs = append(errs, w.proc.Signal(sig))
	}
	return errors.Join(errs...)
}

// judge reads all records and checks them.
func (r *run) judge(result *Result, faultAt int64) error {
	records, err := history.ReadFiles(r.files...)
	if err != nil {
		return err
	}
	h := history.Join(records)
	result.Records, result.Operations = len(h.Records), len(h.Operations)
	for i := range h.Operations {
		if o := &h.Operations[i]; o.Kind == history.Submit && !o.Open() && o.Result.Outcome == history.OK {
			result.Answers++
		}
	}
	result.Violations = append(check.EnoughTraffic(h, leastCommits, leastAnswers*len(r.tiles)),
		check.Run(h, check.All())...)
	r.timeTakeovers(h, faultAt, result)
	return nil
}

// timeTakeovers measures how the tiles of silenced owners changed hands: until another process claimed them,
// and from then until their successors served.
func (r *run) timeTakeovers(h *history.History, faultAt int64, result *Result) {
	for _, id := range r.orphans {
		claimed := firstLife(h, id, tile.Claiming, faultAt)
		if claimed == history.Never {
			continue
		}
		result.Detection = append(result.Detection, time.Duration(claimed-faultAt))
		if served := firstLife(h, id, tile.Serving, claimed); served != history.Never {
			result.Takeover = append(result.Takeover, time.Duration(served-claimed))
		}
	}
}

// firstLife is when a processor of a tile first entered a state after a time; history.Never if none did.
func firstLife(h *history.History, id fence.TileID, s tile.State, after int64) int64 {
	for i := range h.Records {
		if r := &h.Records[i]; r.Kind == history.Life && r.Tile == id && r.At > after && r.Life.State == s.String() {
			return r.At
		}
	}
	return history.Never
}

// newHistory makes a file for one process's records.
func (r *run) newHistory(name string) (*history.File, error) {
	return history.Create(r.historyPath(name))
}

func (r *run) historyPath(name string) string {
	path := filepath.Join(r.dir, name+".jsonl")
	r.files = append(r.files, path)
	return path
}

// tile draws one of the run's tiles.
func (r *run) tile() fence.TileID { return r.tiles[r.rng.IntN(len(r.tiles))] }

// owner is the worker of a tile; some worker if the tile is just without one.
func (r *run) owner(id fence.TileID) *workerSlot {
	if w := r.supervisor.where(id); w != nil {
		return w
	}
	return r.workers[0]
}

// otherWorker is a worker that is not w.
func (r *run) otherWorker(w *workerSlot) *workerSlot {
	for _, i := range r.rng.Perm(len(r.workers)) {
		if r.workers[i] != w {
			return r.workers[i]
		}
	}
	return nil
}
