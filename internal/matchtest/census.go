package matchtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
)

// censuses runs Census with several seeds.
func censuses(s scene) {
	first := seed.Of(s.T)
	for n := first; n < first+3; n++ {
		if err := Census(s.Context(), s.Backend, fmt.Sprintf("census-%s-%d/0", s.pool, n-first), n); err != nil {
			s.Fatalf("seed %d: %v", n, err)
		}
	}
}

// Census lets random workers claim, match, pause, die and cancel for a while, with two supervisors, and then counts: an
// error says which promise of match.Store was broken. The shard must be unused.
func Census(ctx context.Context, store match.Store, shard string, seed uint64) error {
	c := &census{Store: store, shard: shard, holder: make(map[string]hold), believed: make(map[string][]string),
		dissolved: make(map[string]bool)}
	for i := range censusTickets {
		if _, err := store.Enqueue(ctx, shard, solo(fmt.Sprint("t", i), 1000+i), waits(time.Minute)); err != nil {
			return err
		}
	}
	work, stop := context.WithCancel(ctx)
	var workers, supervisors errgroup.Group
	for w := range 4 {
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		workers.Go(func() error { return c.worker(ctx, fmt.Sprint("w", w), random) })
	}
	for range 2 {
		supervisors.Go(func() error {
			for work.Err() == nil {
				if err := c.supervise(ctx); err != nil {
					return err
				}
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		})
	}
	err := workers.Wait()
	time.Sleep(3 * short) // every lease ends
	stop()
	if err = errors.Join(err, supervisors.Wait()); err != nil {
		return err
	}
	if err := c.supervise(ctx); err != nil {
		return err
	}
	return c.count(ctx)
}

const censusTickets = 120

// hold is one worker's belief that it has a ticket, for certain until a time.
type hold struct {
	worker string
	epoch  match.Epoch
	until  time.Time
}

type census struct {
	match.Store
	shard     string
	mu        sync.Mutex
	holder    map[string]hold     // by ticket
	believed  map[string][]string // tickets of the matches that workers were told are recorded
	dissolved map[string]bool     // matches that may have been dissolved
}

// worker claims and matches for a while. It pauses past its lease, forgets its epoch as if it had died, and cancels.
func (c *census) worker(ctx context.Context, name string, random *rand.Rand) error {
	var e match.Epoch
	for round := range 25 {
		began := time.Now()
		h, err := c.Claim(ctx, c.shard, match.Claim{Worker: name, Epoch: e, Lease: short, Limit: 2 + random.IntN(20)})
		if errors.Is(err, match.ErrStale) {
			e = 0
			continue
		}
		if err != nil {
			return err
		}
		e = h.Epoch
		if err := c.have(name, e, h, began.Add(short)); err != nil {
			return err
		}
		switch dice := random.IntN(100); {
		case dice < 15: // paused past its lease
			time.Sleep(2 * short)
		case dice < 30: // dies and is started again
			c.letGo(e, h)
			e = 0
			continue
		case dice < 60:
			if err := c.think(ctx, name, e, h, random); errors.Is(err, match.ErrStale) {
				e = 0
				continue
			} else if err != nil {
				return err
			}
		}
		c.letGo(e, h)
		if err := c.makeMatches(ctx, fmt.Sprintf("%s-%d", name, round), e, h, random); errors.Is(err, match.ErrStale) {
			e = 0
		} else if err != nil {
			return err
		}
	}
	return nil
}

// think takes its time, with a heartbeat.
func (c *census) think(ctx context.Context, name string, e match.Epoch, h match.Holding, random *rand.Rand) error {
	for range 2 {
		time.Sleep(time.Duration(random.IntN(int(short / 2))))
		began := time.Now()
		if err := c.Heartbeat(ctx, c.shard, e, short); err != nil {
			return err
		}
		if err := c.have(name, e, h, began.Add(short)); err != nil {
			return err
		}
	}
	return nil
}

// have notes that a worker has a claim, and fails if another has one of its tickets and a lease that lasts.
func (c *census) have(worker string, e match.Epoch, h match.Holding, until time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range h.Tickets {
		if o, held := c.holder[t.ID]; held && o.epoch != e && time.Now().Before(o.until) {
			return fmt.Errorf("ticket %s was given to %s (epoch %d) while %s (epoch %d) had a lease on it for %v more",
				t.ID, worker, e, o.worker, o.epoch, time.Until(o.until))
		}
		c.holder[t.ID] = hold{worker, e, until}
	}
	return nil
}

// letGo is called before a worker does what ends its claim.
func (c *census) letGo(e match.Epoch, h match.Holding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range h.Tickets {
		if c.holder[t.ID].epoch == e {
			delete(c.holder, t.ID)
		}
	}
}

func (c *census) makeMatches(
	ctx context.Context, prefix string, e match.Epoch, h match.Holding, random *rand.Rand,
) error {
	var matches []match.Match
	back := []match.Unmatched{}
	for i := 0; i+1 < len(h.Tickets); i += 2 {
		pair := []match.Ticket{h.Tickets[i].Ticket, h.Tickets[i+1].Ticket}
		if random.IntN(3) == 0 {
			matches = append(matches, match.Match{ID: fmt.Sprintf("%s-%d", prefix, i), Shard: c.shard, Tickets: pair})
			continue
		}
		back = append(back, match.Unmatched{Ticket: pair[0].ID}, match.Unmatched{Ticket: pair[1].ID})
	}
	if len(h.Tickets) > 0 && random.IntN(20) == 0 {
		if _, err := c.Cancel(ctx, c.shard, h.Tickets[0].ID); err != nil {
			return err
		}
	}
	results, err := c.Record(ctx, c.shard, e, matches)
	if err != nil {
		return err
	}
	for i, m := range matches {
		if results[i] != nil {
			continue
		}
		if err := c.believe(e, m); err != nil {
			return err
		}
		switch random.IntN(6) {
		case 0: // it dies: a supervisor finishes the match
		case 1:
			c.mu.Lock()
			c.dissolved[m.ID] = true
			c.mu.Unlock()
			err = c.dissolve(ctx, m)
		default:
			_, err = c.Publish(ctx, c.shard, []match.Assignment{{Match: m.ID, Tile: 1}})
		}
		if err != nil {
			return err
		}
	}
	if _, err = c.Release(ctx, c.shard, e, back); err != nil {
		return err
	}
	return c.steal(ctx, "steal-"+prefix, e, h, random)
}

// steal tries to record a match of tickets that the worker does not hold.
func (c *census) steal(ctx context.Context, id string, e match.Epoch, h match.Holding, random *rand.Rand) error {
	n := random.IntN(censusTickets)
	a, b := solo(fmt.Sprint("t", n), 1000+n), solo(fmt.Sprint("t", (n+1)%censusTickets), 1000+(n+1)%censusTickets)
	for _, held := range h.Tickets {
		if held.ID == a.ID || held.ID == b.ID { // if a match of it was refused it is still in the claim
			return nil
		}
	}
	results, err := c.Record(ctx, c.shard, e, []match.Match{{ID: id, Shard: c.shard, Tickets: []match.Ticket{a, b}}})
	if err == nil && results[0] == nil {
		err = fmt.Errorf("epoch %d recorded %s and %s, which it did not hold", e, a.ID, b.ID)
	}
	return err
}

// dissolve dissolves a match and tries to publish it all the same.
func (c *census) dissolve(ctx context.Context, m match.Match) error {
	if err := c.Dissolve(ctx, c.shard, m.ID, match.Why{Reason: match.NoSeat}); err != nil {
		return err
	}
	results, err := c.Publish(ctx, c.shard, []match.Assignment{{Match: m.ID, Tile: 1}})
	if err != nil || results[0] != nil {
		return err
	}
	st, err := c.Status(ctx, c.shard, m.Tickets[0].ID)
	if err == nil && st.Match != m.ID && st.State != match.Cancelled {
		err = fmt.Errorf("match %s was dissolved and then published", m.ID)
	}
	return err
}

// believe notes that a match was recorded, and fails if another worker has a ticket of it under a lease that lasts.
func (c *census) believe(e match.Epoch, m match.Match) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range m.Tickets {
		if o, held := c.holder[t.ID]; held && o.epoch != e && time.Now().Before(o.until) {
			return fmt.Errorf("epoch %d recorded ticket %s, which %s (epoch %d) held for %v more", e, t.ID, o.worker,
				o.epoch, time.Until(o.until))
		}
	}
	c.believed[m.ID] = []string{m.Tickets[0].ID, m.Tickets[1].ID}
	return nil
}

func (c *census) supervise(ctx context.Context) error {
	r, err := c.Reclaim(ctx, c.shard, 50)
	if err != nil {
		return err
	}
	for _, m := range r.Pending {
		if _, err := c.Publish(ctx, c.shard, []match.Assignment{{Match: m.ID, Tile: 1}}); err != nil {
			return err
		}
	}
	return nil
}

// count is the census: every ticket is in one state, and in no more matches than one.
func (c *census) count(ctx context.Context) error {
	states, of := make(map[match.State]uint64), make(map[string]match.Status)
	for i := range censusTickets {
		st, err := c.Status(ctx, c.shard, fmt.Sprint("t", i))
		if err != nil {
			return fmt.Errorf("lost: %w", err)
		}
		states[st.State]++
		of[st.Ticket.ID] = st
		if st.State == match.Claimed || st.State == match.Matched {
			return fmt.Errorf("ticket %s is %s for ever, although every lease has ended", st.Ticket.ID, st.State)
		}
		if st.State == match.Seated && c.believed[st.Match] == nil {
			return fmt.Errorf("ticket %s is in match %s, of which no worker knows", st.Ticket.ID, st.Match)
		}
	}
	if err := c.onceEach(of); err != nil {
		return err
	}
	d, err := c.Depth(ctx, c.shard)
	want := match.Depth{Created: censusTickets, Waiting: states[match.Waiting], Seated: states[match.Seated],
		Cancelled: states[match.Cancelled], Matches: uint64(len(c.believed))}
	if err == nil && d != want {
		err = fmt.Errorf("the store counts %+v, and there are %+v", d, want)
	}
	if err == nil && (d.Seated == 0 || d.Matches < 5) {
		err = fmt.Errorf("too little happened: %+v", d)
	}
	return err
}

// onceEach fails if a ticket is in two of the matches that workers were told are recorded, or in none of them as the
// store has it.
func (c *census) onceEach(of map[string]match.Status) error {
	in := make(map[string]string)
	for m, tickets := range c.believed {
		for _, t := range tickets {
			st := of[t]
			if st.State == match.Cancelled || c.dissolved[m] && st.Match != m {
				continue
			}
			if other, twice := in[t]; twice {
				return fmt.Errorf("ticket %s is in two matches: %s and %s", t, m, other)
			}
			in[t] = m
			if st.State != match.Seated || st.Match != m {
				return fmt.Errorf("match %s was recorded and is not the match of ticket %s, which is %s in %q", m, t,
					st.State, st.Match)
			}
		}
	}
	return nil
}

// seatCensuses runs SeatCensus.
func seatCensuses(s scene) {
	require.NoError(s, SeatCensus(s.Context(), s.Backend, "census-"+s.pool, seed.Of(s.T)))
}

// SeatCensus lets players come and go at three tiles from eight goroutines, and fails if two have a seat at one time,
// if a tile has more than it offers, or if an answer changes. The pool must be unused.
func SeatCensus(ctx context.Context, seats match.Seats, pool string, seed uint64) error {
	const tiles, room = 3, 16
	for tile := range tiles {
		if _, err := seats.Offer(ctx, pool, match.Offer{Tile: fence.TileID(1 + tile), Epoch: 1, Contact: "a",
			Seats: room}, time.Minute); err != nil {
			return err
		}
	}
	hall := &hall{Seats: seats, pool: pool, sits: make(map[string]string)}
	var g errgroup.Group
	for w := range 8 {
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		g.Go(func() error { return hall.comeAndGo(ctx, w, room, random) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	list, err := seats.Tiles(ctx, pool)
	used := 0
	for _, l := range list {
		used += l.Used
		if l.Used > l.Seats || l.Used < 0 {
			err = errors.Join(err, fmt.Errorf("tile %s has %d of %d seats used", l.Tile, l.Used, l.Seats))
		}
	}
	if err == nil && used != len(hall.sits) {
		err = fmt.Errorf("the store counts %d seats used, and %d are", used, len(hall.sits))
	}
	return err
}

// hall is the seat of each player, as their tickets say.
type hall struct {
	match.Seats
	pool string
	mu   sync.Mutex
	sits map[string]string // match by tile/seat
}

func (h *hall) comeAndGo(ctx context.Context, w, room int, random *rand.Rand) error {
	var have []match.Assignment
	for i := range 60 {
		if len(have) > 0 && random.IntN(3) == 0 {
			h.rise(have[0])
			if err := h.Free(ctx, h.pool, have[0].Match, "t"); err != nil {
				return err
			}
			have = have[1:]
			continue
		}
		a, err := askTwice(ctx, h.Seats, h.pool, match.Order{Match: fmt.Sprintf("m%d-%d", w, i), Shard: "s",
			Tickets: []match.Party{{Ticket: "t", Seats: 1 + random.IntN(4)}}})
		if errors.Is(err, match.ErrNoSeat) {
			continue
		}
		if err == nil {
			err = h.sit(a, room)
		}
		if err != nil {
			return err
		}
		have = append(have, a)
	}
	return nil
}

func (h *hall) rise(a match.Assignment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range a.Seats["t"] {
		delete(h.sits, fmt.Sprint(a.Tile, "/", n))
	}
}

func (h *hall) sit(a match.Assignment, room int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range a.Seats["t"] {
		key := fmt.Sprint(a.Tile, "/", n)
		if other, taken := h.sits[key]; taken || n >= room {
			return fmt.Errorf("seat %s was given to %s and to %q, of %d", key, a.Match, other, room)
		}
		h.sits[key] = a.Match
	}
	return nil
}

// askTwice allocates an order, and asks again: the answer was lost.
func askTwice(ctx context.Context, seats match.Seats, pool string, o match.Order) (match.Assignment, error) {
	first, err := seats.Allocate(ctx, pool, []match.Order{o}, time.Minute)
	if err != nil {
		return match.Assignment{}, err
	}
	if first[0].Err != nil {
		return match.Assignment{}, first[0].Err
	}
	again, err := seats.Allocate(ctx, pool, []match.Order{o}, time.Minute)
	if err != nil {
		return match.Assignment{}, err
	}
	if a, b := fmt.Sprint(first[0]), fmt.Sprint(again[0]); a != b {
		return match.Assignment{}, fmt.Errorf("match %s got two answers: %s and %s", o.Match, a, b)
	}
	return first[0].Assignment, nil
}
