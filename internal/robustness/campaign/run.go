//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/serverfault"
	"github.com/tilefence/tilefence/internal/robustness/check"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// What a run needs before its fault.
const (
	leastAnswers = 6 // of every tile
	leastCommits = 24
)

// run is one fault in one system under load, from its first worker to the verdict.
type run struct {
	*ground
	Result
	cfg Config
	rng *rand.Rand

	servers    servers
	durable    *process // the run's tables
	recorder   *history.Recorder
	control    *controller
	tiles      []fence.TileID
	workers    []*workerSlot
	filesMu    sync.Mutex
	files      []string // histories
	supervisor *supervisor
	traffic    *traffic
	world      *world
	bank       *game.Bank
	observers  *observers
	stops      []func() // in the order of their starts; once the run's context has ended

	faultAt int64
	damage  faultinject.Damage
	orphans []fence.TileID // tiles of the owners that the fault silences
}

// ground is what runs share: the servers and the campaign's own connections to them.
type ground struct {
	*process
	servers   servers
	stack     *devstack.Stack
	network   *network // nil: hosts cannot be parted
	noNetwork error    // why
	cluster   *cluster
	pair      *devstack.PostgresPair
	dynamo    *devstack.Process
	fanout    []*devstack.Process
	replicas  int      // of each master of the coordination cluster
	stops     []func() // in the order of their starts
}

// postgres is the server that takes writes.
func (g *ground) postgres() *devstack.Process { return g.pair.Primary() }

// Result is what a run gave.
type Result struct {
	Number     int
	Seed       uint64
	Replicas   int // of each master
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
	Acted      coverage        // how often each rule of the protocol did
	Silence    time.Duration   // the longest time that any tile answered no client, from the fault on
	Detection  []time.Duration // of silenced owners' tiles: from the fault to the first claim
	Takeover   []time.Duration // from the claim to serving
	Census     *Census         // of an unbroken run
}

// Failed reports whether the run found something.
func (r *Result) Failed() bool { return r.Err != nil || len(r.Violations) > 0 }

// execute runs one run.
func (r *run) execute(ctx context.Context) {
	began := time.Now()
	if r.Fault.parts && r.network == nil {
		r.Skipped = r.noNetwork.Error()
		return
	}
	r.Err = os.MkdirAll(r.Dir, 0o755)
	if r.Err == nil {
		r.Err = r.play(ctx)
	}
	r.endWorkers()
	if r.Err == nil {
		r.Err = r.judge()
	}
	r.Took = time.Since(began)
}

// play sets the system up, breaks and repairs it, and brings it to rest.
func (r *run) play(ctx context.Context) (err error) {
	if err := r.cluster.AwaitWhole(ctx, 30*time.Second); err != nil {
		return fmt.Errorf("before the run: %w", err)
	}
	unasked, err := r.watchMasters(ctx)
	if err != nil {
		return err
	}
	file, err := history.Create(r.historyPath("campaign"))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	var sink history.Sink = file
	if r.Fault == unbroken {
		sink = history.Only{Sink: file, Kinds: keptUnbroken}
	}
	r.recorder = history.NewRecorder(fmt.Sprintf("campaign-%d", r.Number), sink, nil)
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for _, stop := range slices.Backward(r.stops) {
			stop()
		}
	}()
	if err := r.setUp(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			r.State = r.supervisor.state()
		}
	}()
	if err := r.awaitAnswers(ctx, time.Time{}); err != nil {
		return fmt.Errorf("before the fault: %w", err)
	}
	if r.Fault == unbroken {
		err = r.breakUnbroken(ctx)
	} else {
		err = r.breakAndMend(ctx, r.Fault)
	}
	if err != nil {
		return err
	}
	r.supervisor.rebalance.Store(false)
	r.traffic.end()
	if err := serverfault.Await(ctx, r.cfg.ServeWithin, "every action has its outcome",
		func() error { return errors.Join(r.agreed(ctx), r.settled(ctx)) }); err != nil {
		return err
	}
	return errors.Join(unasked(), r.recordFinal(ctx), r.bank.Record(ctx, r.recorder), r.quiet(), r.recorder.Err())
}

// awaitAnswers waits until every tile serves and has answered enough, and since a time.
func (r *run) awaitAnswers(ctx context.Context, since time.Time) error {
	return serverfault.Await(ctx, r.cfg.ServeWithin, "every tile serves and answers", func() error {
		return errors.Join(r.supervisor.serving(), r.traffic.enough(leastAnswers, since))
	})
}

// agreed returns nil when authority and owner hash name one epoch of every tile. A claimant that died with the only
// copy of its install leaves the authority ahead; the owner has to see to it, since gateways give nothing back before.
func (r *run) agreed(ctx context.Context) error {
	for _, id := range r.tiles {
		g, err1 := r.Authority.Lookup(ctx, id)
		o, err2 := r.Store.Owner(ctx, id)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("tile %s: %w", id, err)
		}
		if g.Epoch != o.Epoch {
			return fmt.Errorf("tile %s: the authority names epoch %d, the store %d", id, g.Epoch, o.Epoch)
		}
	}
	return nil
}

// setUp starts workers, owners, observers and clients.
func (r *run) setUp(ctx context.Context) (err error) {
	if r.tiles, err = r.cluster.drawTiles(ctx, r.rng); err != nil {
		return err
	}
	r.control = newController()
	r.stops = append(r.stops, r.control.http.CloseIdleConnections)
	if err := r.openServers(ctx); err != nil {
		return err
	}
	var starts errgroup.Group
	for _, w := range r.workers {
		starts.Go(func() error { return r.startWorker(ctx, w) })
	}
	if err := starts.Wait(); err != nil {
		return err
	}
	r.supervisor = &supervisor{control: r.control, workers: r.workers, ids: r.tiles,
		rng: rand.New(rand.NewPCG(r.Seed, 1)), takeFrozen: r.Fault.frozen || r.chance(2),
		followers: !r.Fault.staged && (r.cfg.Followers || r.chance(2)), tiles: map[fence.TileID]*placement{}}
	r.supervisor.rebalance.Store(r.Fault.moves || r.chance(3))
	for i, id := range r.tiles {
		r.supervisor.tiles[id] = &placement{}
		if err := r.supervisor.order(ctx, id, r.workers[i%len(r.workers)]); err != nil {
			return err
		}
	}
	supervised := make(chan struct{})
	go func() { defer close(supervised); r.supervisor.run(ctx) }()
	r.stops = append(r.stops, func() { <-supervised })
	r.world = &world{servers: &r.servers, recorder: r.recorder, tiles: r.tiles, bare: r.Fault == unbroken}
	r.stops = append(r.stops, r.world.stop)
	if err := r.world.start(ctx); err != nil {
		return err
	}
	r.observers = &observers{recorder: r.recorder, log: r.Log}
	r.stops = append(r.stops, r.observers.stop)
	if r.Fault == unbroken {
		return r.startTraffic(ctx)
	}
	if err := r.observers.start(ctx, r.tiles, r.world.addresses("relay"), 2); err != nil {
		return err
	}
	return r.startTraffic(ctx)
}

// chance draws one of n, but for a staged fault.
func (r *run) chance(n int) bool { return !r.Fault.staged && r.rng.IntN(n) == 0 }

// openServers makes what of the servers is this run's, and the places of its workers.
func (r *run) openServers(ctx context.Context) (err error) {
	r.servers = r.ground.servers
	r.servers.Name, r.servers.Alone = fmt.Sprintf("run-%d-%d", r.Number, r.Seed), r.Fault.alone
	for i := range workerCount {
		w, err := newWorkerSlot(r.Number, i)
		if err != nil {
			return err
		}
		r.workers = append(r.workers, w)
		r.servers.Seeds = append(r.servers.Seeds, w.gossips)
	}
	r.durable = &process{}
	r.stops = append(r.stops, r.durable.close)
	if err := r.servers.connectDynamo(r.durable, campaignHost); err != nil {
		return err
	}
	if err := r.servers.createTables(ctx, r.durable); err != nil {
		return err
	}
	r.bank, err = game.NewBank(ctx, r.durable.Ledger, players...)
	return err
}

// startTraffic starts clients of tile servers, one for each tile, and players.
func (r *run) startTraffic(ctx context.Context) error {
	forward, err := tilehttp.NewClient(nil)
	if err != nil {
		return err
	}
	r.traffic = newTraffic(r.recorder, forward, r.tiles, func(id fence.TileID) string {
		if w := r.supervisor.where(id); w != nil {
			return w.contact
		}
		return ""
	})
	r.stops = append(r.stops, forward.Close, r.traffic.wg.Wait)
	r.traffic.start(ctx, r.Seed)
	if r.Fault == unbroken {
		return nil
	}
	for i, name := range players {
		r.traffic.play(ctx, r.bank, name, r.Seed+uint64(1000+i), r.world.addresses("gateway"))
	}
	return nil
}

// victim draws a tile, with its owner and its shard.
func (r *run) victim(ctx context.Context) (victim, error) {
	v := victim{tile: r.tile()}
	v.owner = r.owner(v.tile)
	// The client may still name masters before the last failover, and faults ask it for the shard of any tile.
	err := serverfault.Await(ctx, promotionTime, "every tile's shard is known", func() error {
		var errs []error
		for _, id := range r.tiles {
			shard, err := r.cluster.ShardOf(ctx, id)
			errs = append(errs, err)
			if id == v.tile {
				v.Shard = shard
			}
		}
		return errors.Join(errs...)
	})
	return v, err
}

// breakAndMend injects a fault, removes it, and waits until the system is well again.
func (r *run) breakAndMend(ctx context.Context, f *Fault) (err error) {
	info := history.FaultInfo{Name: f.Name, Failover: f.failover}
	r.damage, r.orphans = faultinject.Damage{}, nil
	v, err := r.victim(ctx)
	if err != nil {
		return err
	}
	r.faultAt = history.Monotonic()
	r.traffic.watch()
	r.recorder.Fault(info)
	if err = f.inject(ctx, r, v); err == nil {
		select {
		case <-time.After(r.hold(f)):
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	r.Target = strings.Join(r.damage.Targets, " ")
	mend, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Second)
	defer cancel()
	err = errors.Join(err, r.damage.Repair(mend))
	info.Over, info.Target = true, r.Target
	r.recorder.Fault(info)
	if err != nil {
		return fmt.Errorf("fault %s on %q: %w", f.Name, r.Target, err)
	}
	repaired := time.Now()
	if err := r.cluster.AwaitWhole(ctx, 40*time.Second); err != nil {
		return fmt.Errorf("after %s: %w", f.Name, err)
	}
	if err := r.awaitAnswers(ctx, repaired); err != nil {
		return fmt.Errorf("after %s: %w", f.Name, err)
	}
	r.Silence = max(r.Silence, r.traffic.longest())
	return nil
}

// hold draws how long a fault lasts.
func (r *run) hold(f *Fault) time.Duration {
	d := time.Duration(r.rng.Int64N(int64(f.hold[1] - f.hold[0])))
	if r.cfg.Brief {
		d = 0
	}
	return f.hold[0] + d
}

func (r *run) signalWorkers(sig os.Signal) error {
	var errs []error
	for _, w := range r.workers {
		errs = append(errs, w.proc.Signal(sig))
	}
	return errors.Join(errs...)
}

// judge reads all records and checks them.
func (r *run) judge() error {
	records, err := history.ReadFiles(r.files...)
	if err != nil {
		return err
	}
	h := history.Join(records)
	r.Records, r.Operations = len(h.Records), len(h.Operations)
	r.Acted = coverage{}
	r.Acted.count(h)
	if r.Fault == unbroken {
		r.count(h)
		return nil
	}
	for i := range h.Operations {
		if o := &h.Operations[i]; o.Kind == history.Submit && !o.Open() && o.Result.Outcome == history.OK {
			r.Answers++
		}
	}
	r.Violations = slices.Concat(check.EnoughTraffic(h, leastCommits, leastAnswers*len(r.tiles)),
		check.MoneyConserved(h), check.TravellersInOnePlace(h), check.Run(h, check.All()))
	r.timeTakeovers(h)
	return nil
}

// timeTakeovers measures how the tiles of silenced owners changed hands: until another process claimed them,
// and from then until their successors served.
func (r *run) timeTakeovers(h *history.History) {
	for _, id := range r.orphans {
		claimed := firstLife(h, id, tile.Claiming, r.faultAt)
		if claimed == history.Never {
			continue
		}
		r.Detection = append(r.Detection, time.Duration(claimed-r.faultAt))
		if served := firstLife(h, id, tile.Serving, claimed); served != history.Never {
			r.Takeover = append(r.Takeover, time.Duration(served-claimed))
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

// historyPath is the file for one process's records.
func (r *run) historyPath(name string) string {
	path := filepath.Join(r.Dir, name+".jsonl")
	r.filesMu.Lock()
	defer r.filesMu.Unlock()
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
