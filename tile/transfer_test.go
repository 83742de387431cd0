package tile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// port is a tile of ships that sail from port to port. An intent names a ship and where it goes.
type port struct {
	ships  map[string]int // by name: the ports that it has been to
	berths int            // how many there are, those of ships under way included; 0: any number

	poison string              // the ship with which Play panics
	refuse bool                // every arrival
	back   func(reason string) // called for each ship that Play is given back; nil: nothing is
}

type sailing struct {
	Born, Gone, Came, Back string
	Visits                 int
	To                     uint64
}

func (p *port) Restore(b []byte) error {
	p.ships = map[string]int{}
	if len(b) == 0 {
		return nil
	}
	return json.Unmarshal(b, &p.ships)
}

func (p *port) Snapshot() ([]byte, error) { return json.Marshal(p.ships) }

func (p *port) Resolve(fence.Tick, []tile.Intent) ([][]byte, []stream.Outcome) {
	panic("Play is called")
}

func (p *port) Play(_ fence.Tick, in tile.Inputs) (out tile.Outputs) {
	say := func(s sailing) {
		b, _ := json.Marshal(s)
		out.Events = append(out.Events, b)
	}
	here := maps.Clone(p.ships)
	rooms := map[fence.TileID]int{}
	for _, i := range in.Intents {
		var s sailing
		if json.Unmarshal(i.Body, &s) != nil {
			out.Outcomes = append(out.Outcomes, stream.Rejected)
			continue
		}
		if s.Born != "" {
			here[s.Born] = 0
			say(s)
			out.Outcomes = append(out.Outcomes, stream.Applied)
			continue
		}
		to := fence.TileID(s.To)
		if _, known := rooms[to]; !known {
			rooms[to] = in.Room(to, 64)
		}
		visits, is := here[s.Gone]
		if !is || rooms[to] == 0 {
			out.Outcomes = append(out.Outcomes, stream.Fizzled)
			continue
		}
		rooms[to]--
		delete(here, s.Gone)
		payload, _ := json.Marshal(visits + 1)
		out.Departures = append(out.Departures, stream.Departure{To: to, Entity: s.Gone, Actor: i.Actor,
			Payload: payload})
		say(s)
		out.Outcomes = append(out.Outcomes, stream.Applied)
	}
	for _, r := range in.Returns {
		if r.Entity == p.poison {
			panic("poison: " + p.poison)
		}
		if p.back != nil {
			p.back(r.Reason)
		}
		say(sailing{Back: r.Entity, Visits: visits(r.Payload)})
		here[r.Entity] = 0
	}
	for _, a := range in.Arrivals {
		switch {
		case a.Entity == p.poison:
			panic("poison: " + p.poison)
		case p.refuse, p.berths > 0 && len(here)+in.UnderWay-len(in.Returns)+len(out.Departures) >= p.berths:
			out.Verdicts = append(out.Verdicts, tile.Verdict{Refused: "the port is full"})
		default:
			here[a.Entity] = 0
			say(sailing{Came: a.Entity, Visits: visits(a.Payload)})
			out.Verdicts = append(out.Verdicts, tile.Verdict{})
		}
	}
	return out
}

func visits(payload []byte) (n int) {
	_ = json.Unmarshal(payload, &n)
	return n
}

func (p *port) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		var s sailing
		if err := json.Unmarshal(e, &s); err != nil {
			return err
		}
		arrived := s.Born + s.Came + s.Back
		if _, is := p.ships[arrived]; is {
			return fmt.Errorf("%q is here already", arrived)
		}
		if s.Gone != "" {
			if _, is := p.ships[s.Gone]; !is {
				return fmt.Errorf("%q is not here", s.Gone)
			}
			delete(p.ships, s.Gone)
		} else {
			p.ships[arrived] = s.Visits
		}
		if p.berths > 0 && len(p.ships) > p.berths {
			return fmt.Errorf("%d ships in %d berths", len(p.ships), p.berths)
		}
	}
	return nil
}

// sea is a world of ports.
type sea struct {
	*world
	mu     sync.Mutex
	owners map[fence.TileID][]*harbor // all that have been, the latest last
	lose   func() (request, answer bool)

	answers    func(tile.Presentation) error // instead of the tile; nil, or a nil error: the tile does
	confirming fence.Store                   // instead of the world's; nil: that
	durable    *reach                        // of all; nil: none
	presented  atomic.Int64
}

// harbor is a processor of a port.
type harbor struct {
	*runner
	port *port
	dead chan struct{} // closed: its process has died, and nothing of it reaches anything any more
}

func newSea(t *testing.T) *sea {
	return &sea{world: newWorld(t), owners: map[fence.TileID][]*harbor{},
		lose: func() (bool, bool) { return false, false }}
}

// loses says which messages the network loses.
func (s *sea) loses(f func() (request, answer bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = f
}

var errLost = errors.New("the network lost it")

func (s *sea) open(id fence.TileID, p *port, cfg tile.Config) *harbor {
	s.t.Helper()
	h := &harbor{port: p, dead: make(chan struct{})}
	gone := func(ctx context.Context) error {
		select {
		case <-h.dead:
			<-ctx.Done()
			return &fence.StoreError{Op: "commit", Tile: id, Outcome: fence.ErrUnknownOutcome, Err: errLost}
		default:
			return nil
		}
	}
	cfg.TakeOver = true
	cfg.Commit = func(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
		if err := gone(ctx); err != nil {
			return fence.Receipt{}, err
		}
		return s.store.Commit(ctx, c)
	}
	seams := s.seams()
	if s.durable != nil {
		seams.Journal, seams.Checkpoint = s.durable, s.durable.read
	}
	if s.confirming != nil {
		seams.Store = s.confirming
	}
	seams.Present = func(ctx context.Context, p tile.Presentation) (tile.Answer, error) {
		if err := gone(ctx); err != nil {
			return tile.Answer{}, err
		}
		return s.present(ctx, p)
	}
	processor, err := tile.New(id, fmt.Sprintf("%d:%d", id, len(s.owners[id])+1), seams, p, &cfg)
	require.NoError(s.t, err)
	h.runner = launch(s.t, processor, nil)
	s.mu.Lock()
	s.owners[id] = append(s.owners[id], h)
	s.mu.Unlock()
	return h
}

// kill ends a process at once.
func (s *sea) kill(id fence.TileID) {
	h := s.owner(id)
	close(h.dead)
	h.stop()
}

// owner is the latest owner of a tile.
func (s *sea) owner(id fence.TileID) *harbor {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.owners[id]
	for i := len(all) - 1; i >= 0; i-- { // one that lives may have claimed the tile after a newer one
		if all[i].Status().State != tile.StoodDown {
			return all[i]
		}
	}
	return all[len(all)-1]
}

// present delivers a presentation over a network that loses requests and answers.
func (s *sea) present(ctx context.Context, p tile.Presentation) (tile.Answer, error) {
	s.mu.Lock()
	s.presented.Add(1)
	request, answer := s.lose()
	s.mu.Unlock()
	if request {
		return tile.Answer{}, errLost
	}
	if s.answers != nil {
		if err := s.answers(p); err != nil {
			return tile.Answer{}, err
		}
	}
	a, err := s.owner(p.To).Present(ctx, p)
	if answer {
		return tile.Answer{}, errLost
	}
	return a, err
}

func (s *sea) order(id fence.TileID, o sailing) (tile.Result, error) {
	return s.orderOf(id, tile.Intent{}, o)
}

// orderOf is order by an actor, or of an action.
func (s *sea) orderOf(id fence.TileID, in tile.Intent, o sailing) (tile.Result, error) {
	in.Tile = id
	in.Body, _ = json.Marshal(o)
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	return s.owner(id).Submit(ctx, in)
}

// census is where each ship is by what is committed, each port once for each time that it has the ship.
func (s *sea) census() map[string][]fence.TileID {
	found := map[string][]fence.TileID{}
	for id := range s.owners {
		p := &port{}
		r, err := stream.Recover(context.Background(), s.log, id)
		require.NoError(s.t, err)
		game, _, err := stream.OpenSnapshot(r.Snapshot.Blob)
		require.NoError(s.t, err)
		require.NoError(s.t, p.Restore(game))
		for i := range r.Entries {
			b, err := stream.DecodeBatch(&r.Entries[i])
			require.NoError(s.t, err)
			require.NoError(s.t, p.Apply(r.Entries[i].Tick, b.Events))
		}
		for name := range p.ships {
			found[name] = append(found[name], id)
		}
	}
	return found
}

func (s *sea) drainAll() {
	for id := range s.owners {
		require.NoError(s.t, s.owner(id).drain())
	}
}

func TestAShipCrosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSea(t)
		s.open(1, &port{}, tile.Config{})
		s.open(2, &port{}, tile.Config{})
		o, err := s.order(1, sailing{Born: "argo"})
		require.NoError(t, err)
		require.Equal(t, stream.Applied, o.Outcome, s.owner(1).Status().Failure)
		o, err = s.order(1, sailing{Gone: "argo", To: 2})
		require.NoError(t, err)
		require.Equal(t, stream.Applied, o.Outcome)
		time.Sleep(2 * time.Second)
		assert.Equal(t, map[string][]fence.TileID{"argo": {2}}, s.census())
		assert.Zero(t, s.owner(1).Status().UnderWay)
		assert.Equal(t, 1, s.owner(2).port.ships["argo"])
		s.drainAll()
	})
}

func TestARefusedShipComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSea(t)
		s.open(1, &port{}, tile.Config{})
		s.open(2, &port{refuse: true}, tile.Config{})
		for i := range 3 {
			_, err := s.order(1, sailing{Born: fmt.Sprint(i)})
			require.NoError(t, err)
			_, err = s.order(1, sailing{Gone: fmt.Sprint(i), To: 2})
			require.NoError(t, err)
		}
		time.Sleep(3 * time.Second)
		assert.Equal(t, map[string][]fence.TileID{"0": {1}, "1": {1}, "2": {1}}, s.census())
		assert.Zero(t, s.owner(1).Status().UnderWay)
		s.drainAll()
	})
}

// The berth of a ship that is under way is not given to another: the ship may come back.
func TestTheBerthOfAShipUnderWayIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSea(t)
		s.open(1, &port{berths: 1}, tile.Config{})
		s.open(2, &port{refuse: true}, tile.Config{})
		s.open(3, &port{}, tile.Config{})
		s.loses(func() (bool, bool) { return true, false })
		for from, ship := range map[fence.TileID]sailing{1: {Gone: "argo", To: 2}, 3: {Gone: "nina", To: 1}} {
			_, err := s.order(from, sailing{Born: ship.Gone})
			require.NoError(t, err)
			_, err = s.order(from, ship)
			require.NoError(t, err)
		}
		assert.Empty(t, s.census(), "both are under way")
		s.loses(func() (bool, bool) { return false, false })
		time.Sleep(10 * time.Second)
		assert.Equal(t, map[string][]fence.TileID{"argo": {1}, "nina": {3}}, s.census())
		s.drainAll()
	})
}

// A tile that has waited for an answer once, and so was late, is not late for ever: it does not wait for each answer
// before it presents what has departed meanwhile.
func TestATileThatWasLateCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tick, ships = 500 * time.Millisecond, 8
		s := newSea(t)
		s.open(1, &port{}, tile.Config{TickInterval: tick})
		for i := range ships {
			_, err := s.order(1, sailing{Born: fmt.Sprint(i)})
			require.NoError(t, err)
		}
		time.Sleep(300 * time.Millisecond)
		s.open(2, &port{}, tile.Config{TickInterval: tick})
		time.Sleep(4 * tick)
		_, err := s.order(2, sailing{Born: "nina"}) // from now on tile 2 ticks so long after tile 1
		require.NoError(t, err)
		late := time.Now().Add(2 * tick)
		s.loses(func() (bool, bool) { return time.Now().Before(late), false })
		var took [ships]time.Duration
		var under sync.WaitGroup
		for i := range ships {
			name := fmt.Sprint(i)
			o, err := s.order(1, sailing{Gone: name, To: 2})
			require.NoError(t, err)
			require.Equal(t, stream.Applied, o.Outcome)
			began := time.Now()
			under.Go(func() {
				for len(s.census()[name]) == 0 {
					time.Sleep(10 * time.Millisecond)
				}
				took[i] = time.Since(began)
			})
		}
		under.Wait()
		assert.Greater(t, took[0], tick)
		assert.LessOrEqual(t, took[ships-1], tick+tick/10)
		s.drainAll()
	})
}

// unconfirmedStore is a store whose replicas have nothing while it is so.
type unconfirmedStore struct {
	fence.Store
	behind atomic.Bool
}

func (s *unconfirmedStore) Confirm(ctx context.Context, id fence.TileID, at fence.Position) error {
	if s.behind.Load() {
		return &fence.UnconfirmedError{Receipt: fence.Receipt{Position: at}}
	}
	return s.Store.Confirm(ctx, id, at)
}

// A tile neither presents nor answers what its replicas may not have.
func TestNothingIsSaidThatMayBeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSea(t)
		store := &unconfirmedStore{Store: s.store}
		s.confirming = store
		s.open(1, &port{}, tile.Config{ConfirmEvery: 1000})
		s.open(2, &port{}, tile.Config{ConfirmEvery: 1000})
		_, err := s.order(1, sailing{Born: "argo"})
		require.NoError(t, err)
		store.behind.Store(true)
		_, err = s.order(1, sailing{Gone: "argo", To: 2})
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		assert.Empty(t, s.census(), "it is under way")
		assert.Zero(t, s.presented.Load(), "and was not presented")
		_, err = s.order(1, sailing{Born: "nina"})
		require.NoError(t, err)
		o, err := s.order(1, sailing{Gone: "nina", To: 2})
		require.NoError(t, err)
		assert.Equal(t, stream.Fizzled, o.Outcome, "the border is closed")
		s.loses(func() (bool, bool) { // from now on, what tile 2 decides is not confirmed
			store.behind.Store(true)
			return false, false
		})
		store.behind.Store(false)
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string][]fence.TileID{"argo": {2}, "nina": {1}}, s.census())
		assert.Equal(t, 1, s.owner(1).Status().UnderWay, "the answer may be lost, so nothing is settled")
		s.loses(func() (bool, bool) { return false, false })
		store.behind.Store(false)
		time.Sleep(5 * time.Second)
		assert.Zero(t, s.owner(1).Status().UnderWay)
		s.drainAll()
	})
}

func TestAPoisonedShipIsOneShipsTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSea(t)
		s.open(1, &port{poison: "c"}, tile.Config{})
		s.open(2, &port{poison: "b"}, tile.Config{})
		for _, name := range []string{"a", "b", "d", "e"} {
			_, err := s.order(1, sailing{Born: name})
			require.NoError(t, err)
			_, err = s.order(1, sailing{Gone: name, To: 2})
			require.NoError(t, err)
		}
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string][]fence.TileID{"a": {2}, "b": {1}, "d": {2}, "e": {2}}, s.census())
		_, err := s.order(2, sailing{Born: "c"})
		require.NoError(t, err)
		s.owner(1).port.refuse, s.owner(2).port.poison = true, ""
		_, err = s.order(2, sailing{Gone: "c", To: 1})
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		assert.Equal(t, []fence.TileID{2}, s.census()["c"], "it is refused by tile 1, where the rules fail with it")
		s.owner(1).port.poison, s.owner(2).port.refuse = "e", true
		s.owner(2).port.poison = "e"
		_, err = s.order(2, sailing{Gone: "e", To: 1})
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		assert.Empty(t, s.census()["e"], "the rules fail with it in both")
		assert.Equal(t, 1, s.owner(2).Status().UnderWay, "it is parked, and not lost")

		require.NoError(t, s.owner(2).drain())
		still := s.open(2, &port{poison: "e"}, tile.Config{})
		time.Sleep(5 * time.Second)
		assert.Empty(t, s.census()["e"], "the rules of another owner fail with it, too")
		assert.EqualValues(t, 1, still.Status().Failures, "and it is offered to them once")
		_, err = s.order(2, sailing{Born: "f"})
		require.NoError(t, err)
		require.NoError(t, s.owner(2).drain())
		s.open(2, &port{}, tile.Config{})
		time.Sleep(5 * time.Second)
		assert.Equal(t, []fence.TileID{2}, s.census()["e"], "other rules take it back")
		assert.Equal(t, []fence.TileID{2}, s.census()["f"])
		assert.Zero(t, s.owner(2).Status().UnderWay)
		s.drainAll()
	})
}

// Ships sail between three ports, two of which are often full, over a network that loses much, while owners are killed,
// superseded and replaced.
func TestEveryShipIsInOnePort(t *testing.T) {
	for _, n := range seed.Many(t, 3) {
		synctest.Test(t, func(t *testing.T) {
			sail(t, rand.New(rand.NewPCG(n, 1)))
			if t.Failed() {
				t.Logf("seed %d", n)
			}
		})
		if t.Failed() {
			return
		}
	}
}

func sail(t *testing.T, r *rand.Rand) {
	s := newSea(t)
	ids := []fence.TileID{1, 2, 3}
	berths := map[fence.TileID]int{1: 0, 2: 8, 3: 12}
	cfg := tile.Config{SnapshotEvery: 10, ConfirmEvery: 5}
	for _, id := range ids {
		s.open(id, &port{berths: berths[id]}, cfg)
	}
	const ships = 30
	for i := range ships {
		_, err := s.order(1, sailing{Born: fmt.Sprint("ship ", i)})
		require.NoError(t, err)
	}
	var lossy sync.Mutex
	s.loses(func() (bool, bool) {
		lossy.Lock()
		defer lossy.Unlock()
		return r.IntN(5) == 0, r.IntN(5) == 0
	})
	crossings := 0
	for range 300 {
		lossy.Lock()
		from, to := ids[r.IntN(3)], ids[r.IntN(3)]
		fault := r.IntN(40)
		lossy.Unlock()
		found := s.census()
		for name, at := range found {
			require.Len(t, at, 1, "%s is in more than one port", name)
		}
		if names := slices.Sorted(maps.Keys(found)); len(names) > 0 && from != to {
			for _, name := range names {
				if found[name][0] == from {
					o, err := s.order(from, sailing{Gone: name, To: uint64(to)})
					if err == nil && o.Outcome == stream.Applied {
						crossings++
					}
					break
				}
			}
		}
		switch fault {
		case 0: // its process dies, and another takes over
			s.kill(from)
			s.open(from, &port{berths: berths[from]}, cfg)
		case 1: // another takes over while it lives
			s.open(from, &port{berths: berths[from]}, cfg)
		}
	}
	s.loses(func() (bool, bool) { return false, false })
	time.Sleep(30 * time.Second)
	found := s.census()
	for i := range ships {
		assert.Len(t, found[fmt.Sprint("ship ", i)], 1)
	}
	for _, id := range ids {
		assert.Zero(t, s.owner(id).Status().UnderWay, "nothing is under way at the end")
		for _, h := range s.owners[id] {
			h.stop()
		}
	}
	for _, id := range ids {
		for _, h := range s.owners[id] {
			<-h.done
		}
	}
	assert.Greater(t, crossings, 20)
	t.Log(crossings, "crossings began")
}
