package relayclient_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	tiles "github.com/tilefence/tilefence/tile"
)

// ferries is a tile whose ships sail to the other tile at random, and to which one in eight is not let in. The ship of
// an actor sails when its actor says so.
type ferries struct {
	other fence.TileID
	hops  map[string]uint64
	rand  *rand.Rand
}

type ferryEvent struct {
	Ship    string
	Hop     uint64
	Entered bool
	To      fence.TileID // of one that leaves
}

func (e ferryEvent) append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, byte(e.To)), e.Hop)
	return append(b, e.Ship...)
}

func readFerryEvent(b []byte) *ferryEvent {
	hop, n := binary.Uvarint(b[1:])
	return &ferryEvent{Ship: string(b[1+n:]), Hop: hop, Entered: b[0] == 0, To: fence.TileID(b[0])}
}

func (f *ferries) Restore(b []byte) error {
	f.hops = map[string]uint64{}
	if len(b) == 0 {
		return nil
	}
	return json.Unmarshal(b, &f.hops)
}

func (f *ferries) Snapshot() ([]byte, error) { return json.Marshal(f.hops) }

func (f *ferries) Resolve(fence.Tick, []tiles.Intent) ([][]byte, []stream.Outcome) {
	panic("Play is called")
}

func (f *ferries) Play(_ fence.Tick, in tiles.Inputs) (out tiles.Outputs) {
	say := func(e ferryEvent) {
		out.Events = append(out.Events, e.append(nil))
	}
	leave := func(name string) {
		hop := f.hops[name]
		say(ferryEvent{Ship: name, Hop: hop, To: f.other})
		out.Departures = append(out.Departures, stream.Departure{To: f.other, Entity: name, Actor: name,
			Payload: strconv.AppendUint(nil, hop+1, 10)})
	}
	ordered := map[string]bool{}
	for _, i := range in.Intents {
		_, here := f.hops[i.Actor]
		switch {
		case string(i.Body) == "born":
			say(ferryEvent{Ship: i.Actor, Entered: true})
		case !here || ordered[i.Actor] || in.Room(f.other, 32) == 0:
			out.Outcomes = append(out.Outcomes, stream.Fizzled)
			continue
		default:
			ordered[i.Actor] = true
			leave(i.Actor)
		}
		out.Outcomes = append(out.Outcomes, stream.Applied)
	}
	for _, name := range slices.Sorted(maps.Keys(f.hops)) {
		if name != player && in.Room(f.other, 32) > len(f.hops) && f.rand.IntN(2) == 0 {
			leave(name)
		}
	}
	enter := func(t *stream.Transfer) {
		hop, _ := strconv.ParseUint(string(t.Payload), 10, 64)
		say(ferryEvent{Ship: t.Entity, Hop: hop, Entered: true})
	}
	for i := range in.Returns {
		enter(&in.Returns[i].Transfer)
	}
	for i := range in.Arrivals {
		if f.rand.IntN(8) == 0 {
			out.Verdicts = append(out.Verdicts, tiles.Verdict{Refused: "not now"})
			continue
		}
		enter(&in.Arrivals[i].Transfer)
		out.Verdicts = append(out.Verdicts, tiles.Verdict{})
	}
	return out
}

func (f *ferries) Apply(_ fence.Tick, events [][]byte) error {
	for _, b := range events {
		if e := readFerryEvent(b); e.Entered {
			f.hops[e.Ship] = e.Hop
		} else {
			delete(f.hops, e.Ship)
		}
	}
	return nil
}

const player = "player"

// spectator draws both tiles. Their batches reach it late, each tile's by a delay of its own.
type spectator struct {
	t       *testing.T
	ctx     context.Context
	running sync.WaitGroup
	log     stream.Log
	rand    *rand.Rand

	mu        sync.Mutex // held while a batch is folded, as a relayclient.Client calls its functions one at a time
	sights    relayclient.Crossings[*ferryEvent]
	views     map[fence.TileID]*harbor // of each tile alone
	latest    map[string]latest
	frame     func()
	crossings int
}

// latest is the latest stay of a ship that any batch has told of.
type latest struct {
	hop  uint64
	left bool
}

// harbor is the ships of one tile.
type harbor struct{ ships map[string]bool }

func (s *spectator) watch(id fence.TileID) {
	v := &harbor{ships: map[string]bool{}}
	s.views[id] = v
	s.running.Go(func() { s.follow(id, v) })
}

// quit is called while a batch of another tile is folded.
func (s *spectator) quit(id fence.TileID) { delete(s.views, id) }

func (s *spectator) follow(id fence.TileID, v *harbor) {
	r, err := stream.Recover(context.WithoutCancel(s.ctx), s.log, id)
	require.NoError(s.t, err)
	f := &ferries{}
	game, _, err := stream.OpenSnapshot(r.Snapshot.Blob)
	require.NoError(s.t, err)
	require.NoError(s.t, f.Restore(game))
	at := r.Snapshot.Position
	s.mu.Lock()
	if s.views[id] != v {
		s.mu.Unlock()
		return
	}
	s.sights.Restore(id, func(name string) bool { _, has := f.hops[name]; return has })
	for name, hop := range f.hops {
		v.ships[name] = true
		if hop > s.latest[name].hop {
			s.latest[name] = latest{hop: hop}
		}
		s.sights.Enter(id, name, hop, &ferryEvent{Ship: name})
	}
	s.mu.Unlock()
	for s.ctx.Err() == nil {
		s.mu.Lock()
		late := time.Duration(s.rand.IntN(350)) * time.Millisecond
		s.mu.Unlock()
		time.Sleep(late)
		err := stream.Follow(context.WithoutCancel(s.ctx), s.log, id, at, func(e *fence.Entry) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.views[id] != v {
				return errQuit
			}
			at = e.Position
			return s.fold(id, v, e)
		})
		if err != nil {
			assert.ErrorIs(s.t, err, errQuit)
			return
		}
	}
}

var errQuit = errors.New("this tile is not watched any more")

func (s *spectator) fold(id fence.TileID, v *harbor, entry *fence.Entry) error {
	b, err := stream.DecodeBatch(entry)
	if err != nil {
		return err
	}
	for _, text := range b.Events {
		e := readFerryEvent(text)
		if last := s.latest[e.Ship]; e.Hop > last.hop || e.Hop == last.hop && !e.Entered {
			s.latest[e.Ship] = latest{e.Hop, !e.Entered}
		}
		if e.Entered {
			v.ships[e.Ship] = true
			if s.sights.Enter(id, e.Ship, e.Hop, e) && e.Hop > 0 {
				s.crossings++
			}
		} else {
			delete(v.ships, e.Ship)
			s.sights.Leave(id, e.Ship, e.Hop, e.To)
		}
	}
	s.frame()
	return nil
}

// TestEveryFrameShowsAnEntityOnce has two clients watch ships cross between two tiles whose batches reach them late and
// in no order: one draws both tiles, the other follows its player.
func TestEveryFrameShowsAnEntityOnce(t *testing.T) {
	const ships, most = 200, 10_000
	n := seed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		store := memfence.New()
		log := memstream.New(store)
		seams := tiles.Seams{Authority: memfence.NewAuthority(), Store: store, Log: log}
		owners := map[fence.TileID]*tiles.TileProcessor{}
		seams.Present = func(ctx context.Context, p tiles.Presentation) (tiles.Answer, error) {
			return owners[p.To].Present(ctx, p)
		}
		var running sync.WaitGroup
		for id := fence.TileID(1); id <= 2; id++ {
			rules := &ferries{other: 3 - id, rand: rand.New(rand.NewPCG(n, uint64(id)))}
			var err error
			owners[id], err = tiles.New(id, fmt.Sprint(id, ":1"), seams, rules,
				&tiles.Config{TickInterval: 100 * time.Millisecond, SnapshotEvery: 1 << 20})
			require.NoError(t, err)
		}
		for _, o := range owners {
			running.Go(func() { assert.NoError(t, o.Run(ctx)) })
		}
		names := []string{player}
		for i := range ships {
			names = append(names, fmt.Sprint("ship", i))
		}
		for _, name := range names {
			running.Go(func() {
				_, err := owners[1].Submit(ctx, tiles.Intent{Tile: 1, Actor: name, Body: []byte("born")})
				assert.NoError(t, err)
			})
		}
		time.Sleep(time.Second)

		views, leave := context.WithCancel(ctx)
		all := newSpectator(views, t, log, n)
		bad, naive := 0, 0
		all.frame = func() {
			drawn := 0
			for name, seen := range all.sights.All() {
				if (latest{seen.Hop, seen.To != 0}) == all.latest[name] {
					drawn++
				}
			}
			if drawn != len(names) {
				bad++
			}
			if len(all.views[1].ships)+len(all.views[2].ships) != len(names) {
				naive++
			}
		}
		warm := all.frame
		all.frame = func() {} // until both tiles are there
		for id := range owners {
			all.sights.Watch(id)
			all.mu.Lock()
			all.watch(id)
			all.mu.Unlock()
		}
		one := newSpectator(views, t, log, n+1)
		one.sights.Follow(player)
		one.sights.Join, one.sights.Quit = one.watch, one.quit
		missing, joined := 0, 0
		one.frame = func() {
			if _, ok := one.sights.Get(player); !ok {
				missing++
			}
			joined = max(joined, len(one.views))
		}
		one.mu.Lock()
		one.sights.Crossed(1)
		one.mu.Unlock()
		time.Sleep(time.Second)
		all.mu.Lock()
		all.frame = warm
		all.mu.Unlock()
		one.mu.Lock()
		missing = 0
		one.mu.Unlock()

		trips := 0
		for enough := false; !enough; {
			seen, _ := one.sights.Get(player)
			at := seen.Tile // as long as it is in flight, that is the tile that it has left
			r, err := owners[at].Submit(ctx, tiles.Intent{Tile: at, Actor: player})
			to := r.Crossing.To
			if crossed, ok := errors.AsType[*tiles.CrossedError](err); ok {
				err, to = nil, crossed.To
			}
			require.NoError(t, err)
			if to != 0 {
				trips++
				one.mu.Lock()
				one.sights.Crossed(to)
				one.mu.Unlock()
			}
			all.mu.Lock()
			enough = all.crossings >= most
			all.mu.Unlock()
		}
		time.Sleep(3 * time.Second)
		all.mu.Lock()
		one.mu.Lock()
		t.Logf("%d crossings, %d of the player; %d frames of views that are not put together were wrong",
			all.crossings, trips, naive)
		assert.Zero(t, bad, "frames with none or two of a ship")
		assert.Positive(t, naive, "the test shows nothing")
		assert.Zero(t, missing, "frames without the player")
		assert.Greater(t, trips, 20)
		assert.Equal(t, 2, joined)
		assert.Len(t, one.views, 1, "the tile that the player has left is left")
		one.mu.Unlock()
		all.mu.Unlock()
		leave()
		all.running.Wait()
		one.running.Wait()
		cancel()
		running.Wait()
	})
}

func newSpectator(ctx context.Context, t *testing.T, log stream.Log, n uint64) *spectator {
	return &spectator{t: t, ctx: ctx, log: log, rand: rand.New(rand.NewPCG(n, 0)), views: map[fence.TileID]*harbor{},
		latest: map[string]latest{}}
}

func TestAPlayerIsFollowedByWhatIsSeen(t *testing.T) {
	c := &relayclient.Crossings[string]{}
	var did []string
	c.Join = func(id fence.TileID) { did = append(did, fmt.Sprint("join ", id)) }
	c.Quit = func(id fence.TileID) { did = append(did, fmt.Sprint("quit ", id)) }
	c.Follow("ann")
	c.Watch(9) // a neighbour, whoever is there
	c.Crossed(1)
	assert.True(t, c.Enter(1, "ann", 0, "ship"))
	c.Leave(1, "ann", 0, 2) // no answer came
	seen, ok := c.Get("ann")
	assert.True(t, ok)
	assert.Equal(t, relayclient.Sighting[string]{Tile: 1, To: 2, Value: "ship"}, seen)
	assert.True(t, c.Enter(1, "ann", 1, "ship"), "it comes back")
	c.Leave(1, "ann", 1, 3)
	c.Crossed(3)
	c.Unwatch(3)
	assert.True(t, func() bool { _, ok := c.Get("ann"); return ok }(), "the player is never out of sight")
	c.Crossed(3)
	assert.True(t, c.Enter(3, "ann", 2, "ship"))
	assert.Equal(t, []string{"join 1", "join 2", "quit 2", "join 3", "join 3", "quit 1"}, did)
	assert.False(t, c.Enter(1, "bob", 0, "ship"), "it is not watched any more")
}

func TestWhatIsNotInSightIsNotDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &relayclient.Crossings[string]{}
		drawn := func() (names []string) {
			for name := range c.All() {
				names = append(names, name)
			}
			slices.Sort(names)
			return names
		}
		c.Watch(1)
		c.Watch(2)
		for _, name := range []string{"a", "b", "c", "d"} {
			c.Enter(1, name, 0, name)
		}
		c.Leave(1, "a", 0, 3)
		assert.Equal(t, []string{"b", "c", "d"}, drawn(), "it goes where the client does not look")
		c.End("b", 0)
		c.Leave(1, "c", 0, 2)
		assert.Equal(t, []string{"c", "d"}, drawn())
		assert.False(t, c.Enter(1, "b", 0, "b"), "a state that is older than its end")
		assert.False(t, c.Enter(1, "c", 0, "c"))
		c.Restore(1, func(name string) bool { return name != "d" })
		assert.Equal(t, []string{"c"}, drawn())
		assert.True(t, c.Enter(1, "d", 0, "d"), "it entered after that state")
		c.Unwatch(1)
		assert.Equal(t, []string{"c"}, drawn())
		c.Watch(1)
		c.Restore(1, func(string) bool { return true })
		assert.True(t, c.Enter(1, "d", 0, "d"), "it is still there")
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"d"}, drawn(), "none flies for ever")
		assert.True(t, c.Enter(2, "c", 1, "c"), "but what is late is drawn")
		for i := range 10_000 {
			c.Enter(1, fmt.Sprint(i), 0, "")
			c.End(fmt.Sprint(i), 0)
		}
		assert.Equal(t, []string{"c", "d"}, drawn())
	})
}
