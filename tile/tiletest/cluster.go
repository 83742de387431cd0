package tiletest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// Cluster is hosts that run one tile on back ends in memory: the first that is started owns it, the others follow. It
// is used inside testing/synctest, where the seconds that a take-over lasts take no time, and by one goroutine. What
// does not come about within a minute fails the test.
type Cluster struct {
	t        testing.TB
	tile     fence.TileID
	newRules NewRules
	cfg      tile.Config
	seams    tile.Seams
	hosts    []*Host // that live
	voyage   *voyage // between tiles; nil: nothing leaves this one
}

// Host is one process of a Cluster.
type Host struct {
	Contact string

	*tile.TileProcessor
	rules  tile.Rules
	looks  atomic.Int64 // at the rules; what the host does next comes after them
	killed atomic.Bool
	stop   context.CancelFunc
	done   chan struct{}
	err    error
}

// NewCluster makes a cluster without hosts for a tile; zero is the default of Config.Tile. A nil cfg means the
// defaults; its Follow and TakeOver are set as each host needs them. Its Logger is by default the test's log, of
// errors.
func NewCluster(t testing.TB, id fence.TileID, newRules NewRules, cfg *tile.Config) *Cluster {
	t.Helper()
	c := &Cluster{t: t, tile: id, newRules: newRules}
	if id == 0 {
		c.tile = defaultTile
	}
	if cfg != nil {
		c.cfg = *cfg
	}
	if c.cfg.Logger == nil {
		c.cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	}
	store := memfence.New()
	c.seams = tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store)}
	return c
}

// Start starts a host, which lives until it is killed or stopped, or the test ends.
func (c *Cluster) Start(contact string) *Host {
	c.t.Helper()
	h := &Host{Contact: contact, done: make(chan struct{})}
	var err error
	if h.rules, err = c.newRules(c.tile); err != nil {
		c.t.Fatal(err)
	}
	cfg := c.cfg
	cfg.Follow, cfg.TakeOver = len(c.hosts) > 0, true
	seams := tile.Seams{Authority: intercept.AuthorityOf(c.seams.Authority, h.call),
		Store: intercept.StoreOf(c.seams.Store, h.call), Log: intercept.LogOf(c.seams.Log, h.call)}
	if v := c.voyage; v != nil {
		seams.Store, seams.Present = commits{seams.Store, h, v}, v.presentFrom(h)
	}
	if h.TileProcessor, err = tile.New(c.tile, contact, seams, h.rules, &cfg); err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(c.t.Context()))
	h.stop = stop
	if v := c.voyage; v != nil {
		v.mu.Lock()
		v.hosts[c.tile] = append(v.hosts[c.tile], h)
		v.mu.Unlock()
	}
	go func() {
		defer close(h.done)
		h.err = h.Run(ctx)
	}()
	c.hosts = append(c.hosts, h)
	c.t.Cleanup(func() {
		stop()
		<-h.done
	})
	return h
}

// Kill ends a host as kill -9 does, as far as all others can tell: from now on none of its writes arrives. A follower
// takes its tile over when it has been silent for tile.Config.SuspectAfter.
func (c *Cluster) Kill(h *Host) {
	h.killed.Store(true)
	h.stop()
	c.forget(h)
}

// Stop ends a host as the end of its Run's context does: it plays its last tick and releases the tile.
func (c *Cluster) Stop(h *Host) {
	c.t.Helper()
	h.stop()
	<-h.done
	if h.err != nil {
		c.t.Fatalf("host %s: %v", h.Contact, h.err)
	}
	c.forget(h)
}

func (c *Cluster) forget(h *Host) {
	c.hosts = slices.DeleteFunc(c.hosts, func(other *Host) bool { return other == h })
}

// Submit sends an intent to the owner, as a gateway does, and waits for its outcome. An intent without ActionID whose
// owner was killed meanwhile may not have happened; its outcome is then zero. So it is if the actor has left the tile.
func (c *Cluster) Submit(in tile.Intent) (outcome stream.Outcome) {
	c.t.Helper()
	if in.Tile == 0 {
		in.Tile = c.tile
	}
	c.eventually("an intent has no outcome", func() (done bool, state any) {
		err := errors.New("no host lives")
		for _, h := range c.hosts {
			var r tile.Result
			r, err = h.Submit(c.t.Context(), in)
			outcome = r.Outcome
			if err == nil || errors.Is(err, tile.ErrCrossed) ||
				in.ActionID == "" && errors.Is(err, tile.ErrUnresolved) {
				return true, nil
			}
			if _, invalid := errors.AsType[*fence.ArgumentError](err); invalid {
				c.t.Fatal(err)
			}
		}
		return false, err
	})
	return outcome
}

// Owner waits until a host serves the tile, and returns it.
func (c *Cluster) Owner() (owner *Host) {
	c.t.Helper()
	c.eventually("no host serves the tile", func() (bool, any) {
		for _, h := range c.hosts {
			if h.Status().State == tile.Serving {
				owner = h
			}
		}
		return owner != nil, c.states()
	})
	return owner
}

// Await waits until a host serves the tile.
func (c *Cluster) Await(h *Host) {
	c.t.Helper()
	c.eventually("host "+h.Contact+" does not serve the tile", func() (bool, any) {
		return h.Status().State == tile.Serving, c.states()
	})
}

// State waits until all hosts have folded what was committed, and returns what Snapshot gives on the owner. The test
// fails if it is not the same on all.
func (c *Cluster) State() []byte {
	c.t.Helper()
	owner := c.Owner()
	c.eventually("a follower does not follow", func() (bool, any) {
		synctest.Wait()
		at := owner.Status().Position
		for _, h := range c.hosts {
			if h.Status().Position != at {
				return false, c.states()
			}
		}
		return true, nil
	})
	want := c.snapshot(owner)
	for _, h := range c.hosts {
		got := c.snapshot(h)
		if !same(want, got) {
			c.t.Fatalf("The owner, %s, and the follower %s differ at %s\n  %s\n  look for: %s", owner.Contact,
				h.Contact, owner.Status().Position, difference(want, got), inApply)
		}
	}
	return want
}

func (c *Cluster) snapshot(h *Host) (state []byte) {
	c.t.Helper()
	h.Look(func(rules tile.Rules) {
		var err error
		if state, err = rules.Snapshot(); err != nil {
			c.t.Fatal(err)
		}
	})
	return state
}

// Look calls f with the rules of a host, owner or follower, while all hosts wait for their next tick. f must not change
// them.
func (h *Host) Look(f func(tile.Rules)) {
	synctest.Wait()
	f(h.rules)
	h.looks.Add(1)
}

// states says what the hosts are doing.
func (c *Cluster) states() (s string) {
	for _, h := range c.hosts {
		st := h.Status()
		s += fmt.Sprintf("%s is %s at %s; ", h.Contact, st.State, st.Position)
	}
	return s
}

// eventually asks until it is so; state says what is so instead.
func (c *Cluster) eventually(what string, so func() (done bool, state any)) {
	c.t.Helper()
	var state any
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var done bool
		if done, state = so(); done {
			return
		}
	}
	c.t.Fatalf("%s after a minute: %v", what, state)
}

// playCluster plays random intents on hosts that are killed, stopped and replaced.
func playCluster(t *testing.T, newRules NewRules, intent Generator, cfg Config) {
	r := rand.New(rand.NewPCG(cfg.Seed, 2))
	c := NewCluster(t, cfg.Tile, newRules, &tile.Config{SnapshotEvery: 10})
	names := 0
	start := func() {
		names++
		c.Start(fmt.Sprintf("host-%d:1", names))
	}
	start()
	c.Owner()
	start()
	for tick := range cfg.Ticks / 2 {
		intents, err := generated(r, intent, &cfg)
		if err != nil {
			t.Fatal(err)
		}
		owner := c.Owner()
		answered := make(chan struct{}, len(intents))
		for _, in := range intents {
			go func() {
				_, _ = owner.Submit(t.Context(), in) // what a kill leaves without an answer is not asked again
				answered <- struct{}{}
			}()
			synctest.Wait() // so that a seed gives the same order again
		}
		switch tick % 25 {
		case 12:
			time.Sleep(time.Duration(r.IntN(600)) * time.Millisecond)
			c.Kill(owner)
			start()
		case 24:
			c.Stop(owner)
			start()
		}
		for range intents {
			<-answered
		}
		if tick%5 == 0 {
			c.State()
		}
	}
	c.State()
}

var errKilled = errors.New("the host was killed")

// call is between a host and its back ends. Nothing that a killed host writes arrives.
func (h *Host) call(ctx context.Context, c intercept.Call, do func(context.Context) error) error {
	h.looks.Load() // what was looked at comes before what the host does now
	if c.Write && h.killed.Load() {
		return &fence.StoreError{Op: c.Op, Tile: h.Status().Tile, Outcome: fence.ErrNotApplied, Err: errKilled}
	}
	return do(ctx)
}
