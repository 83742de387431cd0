package relay

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/relay/relayclient"
)

var seedFlag = flag.Uint64("relay.seed", 0, "seed of TestRandom; zero: a new one")

// TestRandom lets everything happen to a few tiles that can happen to them, and then nothing more: every
// client's view must come to equal the store's history, in order on the way.
func TestRandom(t *testing.T) {
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for i := range rounds {
		seed := *seedFlag
		if seed == 0 {
			seed = rand.Uint64()
		} else if i > 0 {
			break
		}
		for _, areas := range []int{0, 6} {
			for _, relays := range []int{1, 2} {
				t.Run(fmt.Sprint(areas, " areas/", relays, " relays/", seed), func(t *testing.T) {
					t.Logf("rerun: go test -race -run TestRandom ./relay -relay.seed=%d", seed)
					newChaos(t, seed, areas, relays).run(150)
				})
			}
		}
	}
}

// chaos is a world with a generator of trouble.
type chaos struct {
	*world
	*rand.Rand
	s       *server
	others  []*server    // that share views with it
	views   *memoryViews // nil: there is one relay
	tiles   []fence.TileID
	owners  map[fence.TileID]*owner
	late    []fence.Entry // published some time, or never
	clients []*watcher
	sleepy  sync.Mutex // held: a client that takes it is slow
}

// newChaos makes the world; with areas, its tiles are divided, and most clients watch some areas. Several relays share
// their views, and clients are dealt to them.
func newChaos(t *testing.T, seed uint64, areas, relays int) *chaos {
	cfg := quick()
	cfg.TailFrames, cfg.refreshFrames, cfg.queueFrames, cfg.BehindGrace = 24, 6, 4, 200*time.Millisecond
	cfg.linger = 50 * time.Millisecond
	c := &chaos{world: newWorld(t), Rand: rand.New(rand.NewPCG(seed, 1)),
		tiles: []fence.TileID{tileA, tileB, tileA + 1}, owners: map[fence.TileID]*owner{}}
	if c.areas = areas; areas > 0 {
		cfg.TailFrames, cfg.queueFrames = 200, 32
	}
	if relays > 1 {
		c.views = newMemoryViews(t)
		cfg.Views = c.views.cache(c.log)
	}
	c.s = c.serve(cfg)
	all := []*server{c.s}
	for range relays - 1 {
		own := *cfg
		own.Views = c.views.cache(c.log)
		all = append(all, c.serve(&own))
	}
	c.others = all[1:]
	for i := range 8 {
		c.clients = append(c.clients, all[i%relays].watch(t, func(cc *relayclient.Config) {
			cc.Reconnect, cc.JSON = true, i%4 == 0
			if i%3 == 0 {
				frame := cc.Frame
				cc.Frame = func(f fence.Entry) {
					c.sleepy.Lock()
					c.sleepy.Unlock() //nolint:staticcheck // waiting is the point
					frame(f)
				}
			}
		}, c.tiles...))
	}
	return c
}

func (c *chaos) run(steps int) {
	for range steps {
		tile := c.tiles[c.IntN(len(c.tiles))]
		o := c.owners[tile]
		if o == nil {
			o = c.claim(tile, 1)
			c.owners[tile] = o
		}
		c.step(o)
		if c.views != nil && c.IntN(10) == 0 {
			c.views.trouble(c.Rand, tile)
		}
		if c.areas > 0 {
			c.clients[1+c.IntN(len(c.clients)-1)].look(tile, c.someAreas()...)
		}
		if c.IntN(3) == 0 {
			time.Sleep(time.Duration(c.IntN(3)) * time.Millisecond)
		}
	}
	c.log.set(func(l *testLog) { l.err = nil })
	if c.views != nil {
		c.views.down.Store(false)
	}
	for i, w := range c.clients {
		switch {
		case c.areas == 0:
			require.NoError(c.t, w.Subscribe(context.Background(), c.tiles...))
		case i%2 == 0: // the others must come right by themselves
			for _, tile := range c.tiles {
				w.look(tile, c.someAreas()...)
			}
		}
	}
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.dump()
		}
	})
	for tile := range c.owners {
		o := c.claimState(tile)
		for _, w := range c.clients {
			w.reaches(o)
		}
	}
	c.t.Logf("%+v", c.s.Stats())
	if c.views != nil {
		c.views.log()
	}
}

// step does one thing to a tile. Weights are in the order of the cases.
func (c *chaos) step(o *owner) {
	switch n := c.IntN(100); {
	case n < 50:
		c.emit(o.commit())
	case n < 57:
		o.snapshot()
	case n < 61:
		c.trimSafely(o.tile)
	case n < 66: // takeover from what the store has
		c.owners[o.tile] = c.claim(o.tile, o.epoch+1)
	case n < 69:
		c.emit(o.rebase())
	case n < 74:
		c.loseAndAppendAgain(o)
	case n < 78:
		c.zombie(o)
	case n < 84:
		for _, f := range c.late[:c.IntN(len(c.late)+1)] {
			c.owners[f.Tile].publish(f)
		}
		c.Shuffle(len(c.late), func(i, j int) { c.late[i], c.late[j] = c.late[j], c.late[i] })
	case n < 87:
		down := error(nil)
		if c.IntN(2) == 0 {
			down = errDown
		}
		c.log.set(func(l *testLog) { l.err = down })
	case n < 91:
		w := c.clients[c.IntN(len(c.clients))]
		_ = w.Unsubscribe(context.Background(), o.tile)
		_ = w.Subscribe(context.Background(), o.tile)
	case n < 94:
		if all := c.s.allClients(); len(all) > 0 { // else they are all on their way back
			_ = all[c.IntN(len(all))].wire.Close()
		}
	default:
		c.sleepy.Lock()
		time.AfterFunc(time.Duration(c.IntN(10))*time.Millisecond, c.sleepy.Unlock)
		for range 8 {
			c.emit(o.commit())
		}
	}
}

// someAreas is what a client may watch.
func (c *chaos) someAreas() (areas []fence.Area) {
	for range 1 + c.IntN(3) {
		areas = append(areas, fence.Area(c.IntN(c.areas)))
	}
	return areas
}

// emit publishes a frame: now, twice, later, or never.
func (c *chaos) emit(f fence.Entry) {
	o := c.owners[f.Tile]
	switch n := c.IntN(10); {
	case n < 6:
		o.publish(f)
	case n < 7:
		o.publish(f, f)
	case n < 8:
		c.late = append(c.late, f)
	}
}

// trimSafely removes what the snapshot covers, as an owner does or although the relay still holds it.
func (c *chaos) trimSafely(tile fence.TileID) {
	if c.IntN(2) == 0 {
		c.trimUnder(tile, time.Second)
		return
	}
	c.store.Update(tile, func(s *memfence.State) {
		if s.Snapshot != nil {
			s.TrimBelow(s.Snapshot.Seq)
		}
	})
}

// loseAndAppendAgain is a failover that loses the last entries, and the living owner that has kept them.
func (c *chaos) loseAndAppendAgain(o *owner) {
	var lost []fence.Entry
	c.store.Update(o.tile, func(s *memfence.State) {
		n := len(s.Entries) - 1 - c.IntN(4)
		if n < 1 || s.Snapshot != nil && s.Entries[n-1].Seq < s.Snapshot.Seq {
			return
		}
		lost = slices.Clone(s.Entries[n:])
		s.Entries = s.Entries[:n:n]
		s.Owner.Position = s.Entries[n-1].Position
	})
	time.Sleep(time.Duration(c.IntN(5)) * time.Millisecond)
	c.store.Update(o.tile, func(s *memfence.State) {
		if len(lost) > 0 {
			s.Entries = append(s.Entries, lost...)
			s.Owner.Position = lost[len(lost)-1].Position
		}
	})
}

// zombie publishes a batch under the owner's own epoch that the store never keeps.
func (c *chaos) zombie(o *owner) {
	payload := bytes.Repeat([]byte{byte(c.IntN(256))}, 5)
	if c.areas > 0 {
		payload = fence.AppendPart(nil, fence.Area(c.IntN(c.areas)), payload)
	}
	o.publish(fence.NewEntry(fence.Entry{Tile: o.tile, Kind: fence.KindBatch, Prev: o.at, Tick: o.tick,
		Payload:  payload,
		Position: fence.Position{Epoch: o.epoch, Seq: o.at.Seq + 1}}))
}

// dump logs the position of the relay, its clients and the store.
func (c *chaos) dump() {
	for _, tile := range c.tiles {
		h := c.s.hubs.open(tile, "")
		h.mu.Lock()
		c.t.Logf("tile %s: relay at %s, whole %v, tail %d from %s, held %d, want %b, repairing %v, failed %v", tile,
			h.view.at, h.view.whole, len(h.view.tail), h.view.start(), len(h.held), h.want, h.repairing, h.failed)
		for _, s := range h.subs {
			c.t.Logf("  %s: live %v, at %s", s.holder, s.live, s.has.at)
		}
		h.mu.Unlock()
		for i, w := range c.clients {
			at, ok := w.Position(tile)
			c.t.Logf("  client %d: at %s, synced %v, %+v, lost %v", i, at, ok, w.Stats(), w.lost)
		}
		c.store.Update(tile, func(s *memfence.State) { c.t.Logf("  store: owner %+v, last %s", s.Owner, s.Last()) })
	}
	c.t.Logf("%+v", c.s.Stats())
}
