package spawn_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/internal/spawn"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

const inn, tower fence.TileID = 0x85283083fffffff, 0x85283087fffffff

// guests is a game of those in a tile. An intent names one that comes in, or that leaves for the tower: "ann>".
type guests struct{ names []string }

func (g *guests) Restore(b []byte) error {
	g.names = strings.Fields(string(b))
	return nil
}

func (g *guests) Snapshot() ([]byte, error) { return []byte(strings.Join(g.names, " ")), nil }

func (g *guests) Resolve(fence.Tick, []tile.Intent) ([][]byte, []stream.Outcome) {
	panic("Play is called")
}

func (g *guests) Play(_ fence.Tick, in tile.Inputs) (out tile.Outputs) {
	say := func(what string) { out.Events = append(out.Events, []byte(what)) }
	for _, i := range in.Intents {
		name, leaves := strings.CutSuffix(string(i.Body), ">")
		if leaves {
			out.Departures = append(out.Departures, stream.Departure{To: tower, Entity: name})
			say("-" + name)
		} else {
			say("+" + name)
		}
		out.Outcomes = append(out.Outcomes, stream.Applied)
	}
	for _, a := range in.Arrivals {
		say("+" + a.Entity)
		out.Verdicts = append(out.Verdicts, tile.Verdict{})
	}
	return out
}

func (g *guests) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		if name := string(e[1:]); e[0] == '+' {
			g.names = append(g.names, name)
		} else {
			g.names = slices.DeleteFunc(g.names, func(n string) bool { return n == name })
		}
	}
	return nil
}

// land is a world of tile servers without a network.
type land struct {
	*testing.T
	authority fence.Authority
	store     *memfence.Store
	log       *memstream.Log
	durable   checkpoint.Backend
	list      *share.Memory
	closed    atomic.Bool // nothing is presented
	hosts     map[string]*server
}

var errDead = errors.New("it is dead")

// server is a host of tiles.
type server struct {
	*tilehost.Host
	dead atomic.Bool // nothing that it writes arrives any more
	stop func()
}

func newLand(t *testing.T) *land {
	store := memfence.New()
	return &land{T: t, authority: memfence.NewAuthority(), store: store, log: memstream.New(store),
		durable: memcheckpoint.New(), list: share.NewMemory(), hosts: map[string]*server{}}
}

func (l *land) present(ctx context.Context, p tile.Presentation) (tile.Answer, error) {
	if l.closed.Load() {
		return tile.Answer{}, errors.New("the road is closed")
	}
	o, err := l.store.Owner(ctx, p.To)
	if err != nil || l.hosts[o.Contact] == nil {
		return tile.Answer{}, errors.Join(err, errors.New("no owner"))
	}
	return l.hosts[o.Contact].Present(ctx, p)
}

// open begins a server.
func (l *land) open(contact string, tiles ...fence.TileID) *server {
	l.Helper()
	s := &server{}
	call := func(ctx context.Context, c intercept.Call, do func(context.Context) error) error {
		if c.Write && s.dead.Load() {
			return &fence.StoreError{Op: c.Op, Tile: c.Tile, Outcome: fence.ErrNotApplied, Err: errDead}
		}
		return do(ctx)
	}
	seams := tile.Seams{Authority: intercept.AuthorityOf(l.authority, call), Store: intercept.StoreOf(l.store, call),
		Log: l.log, Checkpoint: l.durable.Get, Present: l.present}
	rules := func(fence.TileID) (tile.Rules, error) { return &guests{}, nil }
	var err error
	s.Host, err = tilehost.New(contact, seams, rules, &tilehost.Config{Tile: tile.Config{SnapshotEvery: 1 << 20}})
	require.NoError(l, err)
	require.NoError(l, s.Own(tiles...))
	s.stop = l.run(s.Run)
	l.hosts[contact] = s
	require.NoError(l, s.Await(l.Context(), tiles...))
	return s
}

// run runs something until stop is called.
func (l *land) run(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(l.Context())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	return func() { cancel(); assert.NoError(l, <-ended) }
}

// checkpoints runs a checkpointer of the inn.
func (l *land) checkpoints() (c *checkpoint.Checkpointer, stop func()) {
	l.Helper()
	log := slog.New(slog.DiscardHandler)
	c, err := checkpoint.New(l.log, l.durable, nil, []fence.TileID{inn}, &checkpoint.Config{Collector: l.log,
		CollectAfter: time.Minute, Unsettled: tile.Unsettled, Wake: spawn.Caller(l.list, log)})
	require.NoError(l, err)
	return c, l.run(c.Run)
}

// members are those that gossip knows.
type members struct {
	route.Membership
	all []route.Member
}

func (m members) Members() []route.Member { return m.all }

// wakes has a server begin the tiles that need an owner, if decide agrees.
func (l *land) wakes(contact string, decide func() error) (stop func()) {
	log := slog.New(slog.DiscardHandler)
	s := &spawn.Spawner{Host: l.hosts[contact].Host, Store: l.store, Contact: contact, Logger: log,
		Members: members{all: []route.Member{{Contact: contact}}},
		Decide:  func(context.Context, fence.TileID, int) error { return decide() }}
	w := &spawn.Waker{List: l.list, Spawner: s, Authority: l.authority, Logger: log}
	return l.run(w.Run)
}

func (l *land) says(s *server, what string) {
	l.Helper()
	_, err := s.Submit(l.Context(), tile.Intent{Tile: inn, Body: []byte(what)})
	require.NoError(l, err)
}

// in are the guests of a tile that is served.
func (l *land) in(s *server, id fence.TileID) (names []string) {
	l.Helper()
	p := s.Processor(id)
	if p == nil {
		return nil
	}
	require.NoError(l, p.Inspect(l.Context(), func(r tile.Rules, _ fence.Position) {
		names = slices.Clone(r.(*guests).names)
	}))
	return names
}

func (l *land) keys() stream.Stat {
	l.Helper()
	stats, err := l.log.Stat(l.Context(), []fence.TileID{inn})
	require.NoError(l, err)
	return stats[0]
}

func willing() error { return nil }

// A tile is released, or its owner is killed, while ann is under way from it, and no intent comes for it. Its keys stay
// as long as she is; a server that spawns begins it, and she arrives. Then it is at rest like any other.
func TestATileWithSomethingUnderWayWakes(t *testing.T) {
	for name, killed := range map[string]bool{"released": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLand(t)
				c, stop := l.checkpoints()
				defer stop()
				source, other := l.open("a:1", inn), l.open("b:1", tower)
				l.closed.Store(true)
				l.says(source, "ann")
				time.Sleep(10 * time.Second)
				l.says(source, "ann>")
				source.dead.Store(killed)
				source.stop()
				l.closed.Store(false)
				time.Sleep(5 * time.Minute)
				require.True(t, l.keys().HasSnapshot || l.keys().Entries > 0, "it is not at rest")
				require.Equal(t, 1, c.Stats().Unsettled)
				require.Equal(t, inn, c.Stats().UnsettledTile)
				require.Empty(t, l.in(other, tower))

				defer l.wakes("b:1", willing)()
				time.Sleep(20 * time.Second)
				require.Equal(t, []string{"ann"}, l.in(other, tower))
				require.Empty(t, l.in(other, inn))
				require.Zero(t, c.Stats().Unsettled)

				require.NoError(t, other.Drain(t.Context(), inn, ""))
				time.Sleep(5 * time.Minute)
				require.False(t, l.keys().HasSnapshot, "it is at rest, and goes")
				_, runs := other.TileStatus(inn)
				require.False(t, runs, "and is not woken again")
				other.stop()
			})
		})
	}
}

// Of two servers the one that is first in the tile's order is full: the other begins the tile, soon.
func TestAnotherServerWakesWhatOneCannot(t *testing.T) {
	for _, full := range []string{"b:1", "c:1"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLand(t)
			_, stop := l.checkpoints()
			defer stop()
			source := l.open("a:1", inn)
			other, third := l.open("b:1", tower), l.open("c:1")
			var asked atomic.Int64
			for _, contact := range []string{"b:1", "c:1"} {
				defer l.wakes(contact, func() error {
					if contact != full {
						return nil
					}
					asked.Add(1)
					return tilehost.ErrFull
				})()
			}
			l.closed.Store(true)
			l.says(source, "ann")
			l.says(source, "ann>")
			source.stop()
			l.closed.Store(false)
			time.Sleep(time.Minute)
			assert.Equal(t, []string{"ann"}, l.in(other, tower))
			assert.LessOrEqual(t, asked.Load(), int64(5), "a server that is full is not asked at each look")
			other.stop()
			third.stop()
		})
	}
}
