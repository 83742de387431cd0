package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/check"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

const (
	tickInterval = 100 * time.Millisecond
	ownerTTL     = 3 * time.Second
	quiet        = 2 * time.Second // at the beginning, without faults
	lookEvery    = 5 * time.Second // owners look whether the authority's record is their own
	// retryWindow is shorter than most faults, so that actions expire.
	retryWindow = 1500 * time.Millisecond
)

// Options say what is simulated. The zero value is the protocol as it is, two tiles, for a minute.
type Options struct {
	Mutant   Mutant
	Tiles    int           // default 2; those after the first are born while things break
	Duration time.Duration // of the faults, in simulated time. Default 60 s.
	Restores bool          // put the authority back to older states, too
	Loses    bool          // lose every copy of a tile's end, too, and put the authority back
	Calm     bool          // no failovers: one copy of the store answers at all times
	Watched  bool          // deliver the tiles to watchers as well, and break what delivers them
	// Paid has players pay for actions, through gateways with a ledger that hear of owners by gossip, and breaks those.
	Paid bool
	// Travels has travellers cross from tile to tile, and requires at the end that each is in one of them.
	Travels bool
}

// Stats count what happened in a run.
type Stats struct {
	Actions    int            // that got an outcome
	Rebases    int            // of serving owners
	Reappended int            // batches re-appended
	Reclaimed  int            // owners that went above a record that was not theirs
	LeftAlone  int            // successors that served on when a stale owner woke behind an older standby
	Twins      int            // epochs that two owners were granted, and one has served
	Frames     int            // that watchers were sent
	Resets     int            // of watchers' states, from scratch
	Paid       int            // actions that were admitted at a price
	Refunded   int            // of those, whose price was given back
	Crossings  int            // of travellers who left a tile
	Faults     map[string]int // by name
	Claimants  int
	Simulated  time.Duration
}

// add counts another run in.
func (s *Stats) add(o *Stats) {
	s.Actions += o.Actions
	s.Rebases += o.Rebases
	s.Reappended += o.Reappended
	s.Reclaimed += o.Reclaimed
	s.LeftAlone += o.LeftAlone
	s.Twins += o.Twins
	s.Simulated += o.Simulated
	s.Claimants += o.Claimants
	s.Frames += o.Frames
	s.Resets += o.Resets
	s.Paid += o.Paid
	s.Refunded += o.Refunded
	s.Crossings += o.Crossings
	for name, n := range o.Faults {
		s.Faults[name] += n
	}
}

// Result is one run.
type Result struct {
	History    *history.History
	Violations []check.Violation
	Stats      Stats
}

// world is one simulated run.
type world struct {
	seed     uint64
	net      *network
	cluster  *cluster
	registry *registry
	durable  checkpoint.Backend
	silent   atomic.Uint64 // the tile of whose journal the durable store takes nothing
	loses    bool
	travels  bool
	delivery *delivery // nil: there are no watchers
	market   *market   // nil: there are no payments
	records  *history.Memory
	recorder *history.Recorder
	tiles    []fence.TileID
	running  sync.WaitGroup // processors

	mu         sync.Mutex
	claimants  map[fence.TileID][]*claimant
	stats      Stats
	violations []check.Violation
}

// Run simulates one run. It must be called in a bubble of testing/synctest. The package comment says how far
// equal seeds and options give equal runs.
func Run(seed uint64, o Options) Result {
	if o.Tiles == 0 {
		o.Tiles = 2
	}
	if o.Duration == 0 {
		o.Duration = time.Minute
	}
	began := time.Now()
	w := newWorld(seed, &o)
	ctx, stopGateways := context.WithCancel(context.Background())
	if o.Watched {
		w.delivery = w.deliver(ctx)
	}
	var gateways sync.WaitGroup
	if o.Paid {
		w.market = w.trade(ctx, &gateways)
	}
	for i, id := range w.tiles {
		birth := time.Duration(i) * (quiet + time.Duration(seed%40)*time.Second/10)
		gateways.Go(func() {
			if sleep(ctx, birth) == nil {
				w.populate(ctx, id)
			}
		})
	}
	_ = sleep(ctx, quiet)
	w.breakThings(&o)
	stopGateways()
	gateways.Wait()
	w.settle()
	for _, id := range w.tiles {
		w.finish(id)
	}
	time.Sleep(3 * time.Second) // what the last actions have begun comes to its end
	for _, id := range w.tiles {
		w.recordEnd(id)
	}
	if o.Travels {
		w.census()
	}
	if o.Watched {
		w.delivery.converge()
		w.delivery.end()
	}
	if o.Paid {
		w.market.close()
	}
	var living []*claimant
	for _, id := range w.tiles {
		living = append(living, w.living(id)...)
	}
	for _, c := range living {
		c.host.kill()
	}
	for _, c := range living {
		w.crash(c)
		<-c.done // one after the other
	}
	w.running.Wait()
	w.stats.Simulated = time.Since(began)
	return w.judge()
}

// populate runs a tile's first claimants, two at once, and the gateways that send it actions until ctx ends.
func (w *world) populate(ctx context.Context, id fence.TileID) {
	w.start(id, func(*tile.Config) {})
	if w.seed%3 == 0 {
		w.start(id, func(*tile.Config) {})
	}
	var gateways sync.WaitGroup
	for n := range 2 {
		gateways.Go(func() { w.gateway(ctx, id, n) })
	}
	gateways.Wait()
}

func newWorld(seed uint64, o *Options) *world {
	w := &world{seed: seed, loses: o.Loses, travels: o.Travels,
		net: &network{}, cluster: newCluster(ownerTTL, seed, o.Mutant),
		durable: memcheckpoint.New(), records: &history.Memory{}, claimants: map[fence.TileID][]*claimant{},
		stats: Stats{Faults: map[string]int{}}}
	w.recorder = history.NewRecorder(fmt.Sprintf("simulation-%d", seed), w.records, bubbleTime())
	auditor := w.recorder.Auditor("auditor", nil)
	w.cluster.observe = func(id fence.TileID, t *tileCopy) {
		auditor.Observe(&stream.Chunk{Tile: id, Entries: t.Entries, Owner: t.Owner})
	}
	for i := range o.Tiles {
		w.tiles = append(w.tiles, fence.TileID(0x85283083fffffff+uint64(i)<<32))
	}
	w.registry = newRegistry(o.Mutant, w.tiles)
	return w
}

// classes are the durability classes that tiles have by turns, other ones for each seed.
var classes = [...]tile.Durability{tile.Checkpointed, tile.Replicated, tile.WriteThrough, tile.ReplicatedActions,
	tile.WriteBehind}

// journaled are the classes that promise travellers anything when every copy is lost.
var journaled = [...]tile.Durability{tile.WriteThrough, tile.WriteBehind}

func (w *world) classOf(id fence.TileID) tile.Durability {
	n := w.seed + uint64(slices.Index(w.tiles, id))
	if w.travels && w.loses {
		return journaled[n%uint64(len(journaled))]
	}
	return classes[n%uint64(len(classes))]
}

// bubbleTime is a clock of package time, which the bubble moves.
func bubbleTime() history.Clock {
	start := time.Now()
	return func() int64 { return int64(time.Since(start)) }
}

// breakThings runs the faults.
func (w *world) breakThings(o *Options) {
	w.net.bad.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), o.Duration)
	defer cancel()
	var breakers sync.WaitGroup
	stores := &breaker{world: w, rng: rand.New(rand.NewPCG(w.seed, 1))}
	owners := &breaker{world: w, rng: rand.New(rand.NewPCG(w.seed, 2))}
	breakers.Go(func() { stores.run(ctx, stores.storeFaults(o.Calm)) })
	breakers.Go(func() { owners.run(ctx, owners.ownerFaults(o)) })
	if d := w.delivery; d != nil {
		b := d.breaker()
		breakers.Go(func() { b.run(ctx, d.faults(b)) })
	}
	if m := w.market; m != nil {
		b := m.breaker()
		breakers.Go(func() { b.run(ctx, m.faults(b)) })
	}
	breakers.Wait()
}

// settle ends all faults and waits until nothing is under way any more.
func (w *world) settle() {
	w.net.bad.Store(false)
	w.registry.setDown(false)
	w.silent.Store(0)
	for i := range nodes {
		if m, _ := w.cluster.masterNow(); i == m {
			w.cluster.wake(i)
			w.cluster.set(i, func(n *node) { n.down, n.cut = false, false })
		} else {
			w.cluster.rejoin(i)
		}
	}
	time.Sleep(maxDelay + time.Second) // what is late arrives
	for _, id := range w.tiles {
		for _, c := range w.living(id) {
			c.host.resume()
		}
	}
	time.Sleep(15 * time.Second) // longer than any patience of a processor
}

// finish requires that the tile serves again.
func (w *world) finish(id fence.TileID) {
	// A follower of a tile that no owner ever began waits for one.
	f := w.follower(id)
	unborn := f != nil && f.Status().Position.IsZero() && w.server(id) == nil
	if len(w.living(id)) == 0 || unborn {
		w.start(id, func(*tile.Config) {})
	}
	h := newHost(w.net, fmt.Sprintf("finisher %s", id), w.seed)
	served := false
	for i := 0; i < 30 && !served; i++ {
		served = w.submit(context.Background(), id, "finisher", fmt.Sprintf("last-%d", i), h)
	}
	if !served {
		w.fail(id, "the tile does not serve after the faults are over")
	}
}

// recordEnd records where a tile stands.
func (w *world) recordEnd(id fence.TileID) {
	w.recordFinal(id)
	for _, c := range w.living(id) {
		if s := c.Status(); s.State == tile.Following {
			w.recorder.Held(c.name, id, s.Position, "") // it shows its state to no client
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := c.Inspect(ctx, func(rules tile.Rules, at fence.Position) {
			state, _ := rules.Snapshot()
			w.recorder.Held(c.name, id, at, fence.Checksum(state))
		})
		cancel()
		if err != nil && !c.ended() {
			w.fail(id, "%s neither serves nor has ended: it is %s", c.name, c.Status().State)
		}
	}
}

// recordFinal reads a tile's end from the true master.
func (w *world) recordFinal(id fence.TileID) {
	h := newHost(w.net, fmt.Sprintf("final %s", id), w.seed)
	h.route, _ = w.cluster.masterNow()
	f, err := game.ReadFinal(context.Background(), w.seams(h), id)
	if err != nil {
		w.fail(id, "its end cannot be read: %v", err)
	}
	class := w.classOf(id)
	f.Class, f.Kept = class.String(), class != tile.Checkpointed && class != tile.WriteBehind &&
		(!w.loses || class == tile.WriteThrough)
	w.recorder.Final(id, f)
	if f.Row.Epoch != f.Owner.Epoch {
		w.fail(id, "the authority names epoch %d, and the owner hash %d", f.Row.Epoch, f.Owner.Epoch)
	}
}

// judge runs the checks.
func (w *world) judge() Result {
	h := history.Join(w.records.Records())
	r := Result{History: h, Violations: w.violations, Stats: w.stats}
	r.Violations = append(r.Violations, check.EnoughTraffic(h, 2, 2)...)
	r.Violations = append(r.Violations, check.Run(h, check.All())...)
	for i := range h.Records {
		switch h.Records[i].Kind {
		case history.Frame:
			r.Stats.Frames++
		case history.Reset:
			r.Stats.Resets++
		case history.Paid:
			r.Stats.pay(h.Records[i].Payment)
		}
	}
	for _, id := range w.tiles {
		r.Stats.Claimants += len(w.claimants[id])
	}
	return r
}

func (w *world) fail(id fence.TileID, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, check.Violation{Check: "serves again", Tile: id,
		Detail: fmt.Sprintf(format, args...)})
}

func (w *world) count(fault string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Faults[fault]++
}
