package tiletest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// voyage is what happens on the way between clusters that share their back ends: each step of a crossing meets each
// fault in turn.
type voyage struct {
	r *rand.Rand

	mu    sync.Mutex
	hosts map[fence.TileID][]*Host // that were started, the latest last
	met   tally                    // faults, by step
	calm  bool                     // no more faults
	next  time.Time                // no fault before: a tile needs an owner again
}

// The steps of a crossing, and what may happen at each.
var (
	stepsCommitted = []string{"departure", "arrival", "settlement"} // "refusal" too, of a game that refuses
	faultsOfOwners = []string{"owner killed before", "owner killed after"}
	faultsOnTheWay = []string{"lost", "answer lost", "repeated"}
)

const message = "message"

// covered reports whether each step has met each fault.
func (v *voyage) covered() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	every := func(step string, faults []string) bool {
		return !slices.ContainsFunc(faults, func(f string) bool { return v.met[step][f] == 0 })
	}
	for _, step := range stepsCommitted {
		if !every(step, faultsOfOwners) {
			return false
		}
	}
	return every(message, faultsOnTheWay)
}

// fault picks what happens at a step: what has happened least often there; "": nothing.
func (v *voyage) fault(step string, faults []string, rest time.Duration) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if v.calm || step == "" || now.Before(v.next) {
		return ""
	}
	least := slices.MinFunc(faults, func(a, b string) int { return v.met[step][a] - v.met[step][b] })
	if v.met[step][least] > 0 && v.r.IntN(4) > 0 {
		return ""
	}
	v.met.add(step, least, 1)
	v.next = now.Add(rest)
	return least
}

// commits are the commits of a host's owner.
type commits struct {
	fence.Store
	h *Host
	v *voyage
}

// Commit implements fence.Store.
func (s commits) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	fault := s.v.fault(stepOf(&c), faultsOfOwners, 8*time.Second)
	if fault == faultsOfOwners[0] {
		s.h.die()
	}
	r, err := s.Store.Commit(ctx, c)
	if fault == faultsOfOwners[1] {
		s.h.die()
		return fence.Receipt{}, &fence.StoreError{Op: "commit", Tile: c.Tile, Outcome: fence.ErrUnknownOutcome,
			Err: errKilled}
	}
	return r, err
}

// stepOf is the step of a crossing that a commit makes; "": none.
func stepOf(c *fence.Commit) string {
	b, err := stream.DecodeBatch(&fence.Entry{Payload: c.Payload, Private: c.Private})
	switch {
	case err != nil:
		return ""
	case len(b.Departures) > 0:
		return stepsCommitted[0]
	case slices.ContainsFunc(b.Decisions, func(d stream.Decision) bool { return len(d.Refused) > 0 }):
		return "refusal"
	case slices.ContainsFunc(b.Decisions, func(d stream.Decision) bool { return !d.Mark.IsZero() }):
		return stepsCommitted[1]
	case len(b.Settlements) > 0:
		return stepsCommitted[2]
	}
	return ""
}

// die kills a host from one of its own calls.
func (h *Host) die() {
	h.killed.Store(true)
	h.stop()
}

var errLost = errors.New("the message was lost")

// presentFrom is Seams.Present of a host.
func (v *voyage) presentFrom(h *Host) func(context.Context, tile.Presentation) (tile.Answer, error) {
	return func(ctx context.Context, p tile.Presentation) (a tile.Answer, err error) {
		step := ""
		if len(p.Transfers) > 0 {
			step = message
		}
		fault := v.fault(step, faultsOnTheWay, time.Second)
		if fault == "lost" {
			return a, errLost
		}
		if a, err = v.present(ctx, h, p); fault == "repeated" {
			a, err = v.present(ctx, h, p)
		}
		if fault == "answer lost" || h.killed.Load() {
			return tile.Answer{}, errLost
		}
		return a, err
	}
}

func (v *voyage) present(ctx context.Context, h *Host, p tile.Presentation) (a tile.Answer, err error) {
	v.mu.Lock()
	to := slices.Clone(v.hosts[p.To])
	v.mu.Unlock()
	err = errLost
	for _, other := range slices.Backward(to) {
		if !other.killed.Load() && !h.killed.Load() {
			if a, err = other.Present(ctx, p); err == nil {
				return a, nil
			}
		}
	}
	return a, err
}

// fleet is clusters between which entities travel.
type fleet struct {
	*voyage
	t        *testing.T
	cfg      *Config
	census   Census
	clusters []*Cluster
	started  int
	seen     map[string]bool // entities
	totals   map[string]int  // at the beginning
	waiting  sync.WaitGroup
}

// crossCluster plays random intents on hosts of several tiles, which are killed at each step of a crossing. Ends says
// that entities of this game end.
func crossCluster(t *testing.T, newRules NewRules, intent Generator, census Census, cfg *Config, ends bool) {
	t.Helper()
	v := &voyage{r: rand.New(rand.NewPCG(cfg.Seed, 4)), hosts: map[fence.TileID][]*Host{}, met: tally{}}
	f := &fleet{voyage: v, t: t, cfg: cfg, census: census, seen: map[string]bool{},
		totals: map[string]int{}}
	for _, id := range cfg.Tiles {
		c := NewCluster(t, id, newRules, &tile.Config{SnapshotEvery: 10})
		if c.voyage = v; len(f.clusters) > 0 {
			c.seams = f.clusters[0].seams
		}
		f.clusters = append(f.clusters, c)
		fresh, err := newRules(id)
		if err == nil {
			err = fresh.Restore(nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		add(f.totals, cfg.Totals(fresh))
	}
	intents := rand.New(rand.NewPCG(cfg.Seed, 5))
	for round := 0; round < cfg.Ticks/4 || round < 4*cfg.Ticks && !v.covered(); round++ {
		f.start()
		all, err := generated(intents, intent, cfg)
		if err != nil {
			t.Fatal(err)
		}
		f.submit(all)
		time.Sleep(time.Second / 2)
		if round%8 == 0 {
			f.look()
		}
	}
	f.finish(ends)
	v.met.log(t)
}

// start replaces the hosts that have died: a tile has an owner and a follower.
func (f *fleet) start() {
	for _, c := range f.clusters {
		c.hosts = slices.DeleteFunc(c.hosts, func(h *Host) bool { return h.killed.Load() })
		for len(c.hosts) < 2 {
			f.started++
			c.Start(fmt.Sprintf("host-%d:1", f.started))
		}
	}
}

// submit sends intents, and does not wait for their answers.
func (f *fleet) submit(all []tile.Intent) {
	for _, in := range all {
		h := f.latestOwner(in.Tile)
		if h == nil {
			continue // none of these tiles
		}
		f.waiting.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(f.t.Context()), 5*time.Second)
			defer cancel()
			_, _ = h.Submit(ctx, in) // what a kill leaves without an answer is not asked again
		})
	}
}

// look takes a census of all tiles, one after the other: what crosses meanwhile may be seen twice.
func (f *fleet) look() map[string][]fence.TileID {
	at := map[string][]fence.TileID{}
	for _, c := range f.clusters {
		c.Owner().Look(func(rules tile.Rules) {
			for _, name := range f.census(rules) {
				at[name], f.seen[name] = append(at[name], c.tile), true
			}
		})
	}
	return at
}

// finish lets all that is under way arrive, and compares what is where.
func (f *fleet) finish(ends bool) {
	f.t.Helper()
	f.waiting.Wait()
	f.mu.Lock()
	f.calm = true
	f.mu.Unlock()
	f.start()
	time.Sleep(restAfter) // what the rules do by themselves ends
	f.clusters[0].eventually("entities are still under way", func() (bool, any) {
		under := 0
		for _, c := range f.clusters {
			under += c.Owner().Status().UnderWay
		}
		return under == 0, under
	})
	at := f.look()
	for name := range f.seen {
		if n := len(at[name]); n > 1 || n == 0 && !ends {
			f.t.Fatalf("An entity is in %d tiles, when nothing is under way\n  %s is in %v", n, name, at[name])
		}
	}
	totals := map[string]int{}
	for _, c := range f.clusters {
		c.State()
		c.Owner().Look(func(rules tile.Rules) { add(totals, f.cfg.Totals(rules)) })
	}
	if !maps.Equal(totals, f.totals) {
		f.t.Fatalf("The totals have changed, when nothing is under way\n  %v, and they were %v\n  look for: %s", totals,
			f.totals, inTotals)
	}
}

// restAfter is how long rules may go on by themselves, without intents.
const restAfter = 30 * time.Second

// latestOwner is the host that serves a tile; the latest, if none does.
func (v *voyage) latestOwner(id fence.TileID) (owner *Host) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, h := range v.hosts[id] {
		if owner == nil || !h.killed.Load() && h.Status().State == tile.Serving {
			owner = h
		}
	}
	return owner
}
