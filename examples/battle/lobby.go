package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
	"github.com/tilefence/tilefence/internal/figures"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/internal/wait"
)

// The matchmaking of a battle: how many run, and for how long things last. A battle is short, so all is quicker than
// the defaults.
const (
	matchWorkers     = 2
	matchSupervisors = 2
	matchLease       = 2 * time.Second
	matchPeriod      = time.Second
	seatHold         = 3 * time.Second // for a player to come to the gateway
	seatsPerTile     = 4
	offerEvery       = time.Second
	offerTTL         = 3 * offerEvery
	matchPool        = "battle"
)

// matchStore is where tickets and seats are kept.
type matchStore interface {
	match.Store
	match.Seats
}

// lobby is the way from "find a match" to a seat on a tile: match workers, supervisors, the tiles' offers of seats, and
// the entrance (entrance.go) where players ask.
type lobby struct {
	*deployment
	store   matchStore
	queue   match.Queue
	pool    string
	tickets *match.Lobby
	seats   *match.SeatAllocator
	handler http.Handler // of the entrance

	waits          *figures.Histogram // of tickets that have got a seat
	spread, placed atomic.Int64       // sum over the matches that were placed, and their number
	noSeat, lapsed atomic.Int64       // matches dissolved; tickets whose players did not come
	killed         atomic.Int64       // workers

	mu      sync.Mutex
	workers []*matchWorker
	hired   int
	graves  []*matchWorker // killed: their goroutines wait for the end
	stops   []func()       // of supervisors, offers and looks
	shown   *statuspoller.Lobby
	book    book
}

// newLobby makes the lobby of a battle. Its queue and its pool of seats are the battle's own, also where servers
// are shared.
func (d *deployment) newLobby() (*lobby, error) {
	name := rand.Text()[:8]
	l := &lobby{deployment: d, store: d.backends.tickets, pool: matchPool + "-" + name, waits: figures.NewHistogram(),
		shown: &statuspoller.Lobby{}, book: newBook()}
	// Two teams of two; pairs if nobody else comes for a while.
	l.queue = match.Queue{Name: "battle-" + name, Min: 2, Max: 4, Teams: 2, Patience: 3 * time.Second,
		MaxWait: time.Minute, Room: 2000, Strategy: match.Window{Initial: 100, Growth: 40}}
	var err error
	if l.tickets, err = match.NewLobby(l.store, l.queue); err != nil {
		return nil, err
	}
	if l.seats, err = match.NewSeatAllocator(l.store, l.pool, seatHold); err != nil {
		return nil, err
	}
	l.handler, err = l.entrance()
	return l, err
}

// open starts workers, supervisors and offers.
func (l *lobby) open() error {
	for range matchWorkers {
		if err := l.hire(); err != nil {
			return err
		}
	}
	for range matchSupervisors {
		s, err := match.NewSupervisor(l.store, l.seats, []match.Queue{l.queue}, &match.SupervisorConfig{
			Period: matchPeriod, Hooks: match.Hooks{Finished: l.finished, Reclaimed: l.reclaimed}, Logger: l.logger})
		if err != nil {
			return err
		}
		l.stops = append(l.stops, l.start(s.Run))
	}
	l.stops = append(l.stops, l.start(l.offer), l.start(l.look))
	return nil
}

// queueUp lets players come and go until ctx ends. The battle's figures are those of its own bots alone.
func (l *lobby) queueUp(ctx context.Context) error {
	cfg := l.playing(l.view, l.intents)
	cfg.Measures, cfg.Delivered = players.NewMeasures(), nil
	at := l.secure.url("http", l.watchers.Addr().String())
	return players.QueueUp(ctx, l.options.lobby,
		players.Entrance{Guests: at + guestPath, Tickets: at + ticketPath, SeatHold: seatHold}, cfg)
}

// close stops what open and hire have started. Workers first: what they have under way they finish, and supervisors
// finish the rest.
func (l *lobby) close(ctx context.Context) {
	l.mu.Lock()
	workers := append(l.workers, l.graves...)
	l.workers, l.graves = nil, nil
	l.mu.Unlock()
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() {
			w.Line.Bury()
			w.stop()
		})
	}
	all.Wait()
	l.settle(ctx)
	for _, stop := range l.stops {
		stop()
	}
	l.stops = nil
}

// settle waits until supervisors have returned or finished all that dead workers held.
func (l *lobby) settle(ctx context.Context) {
	for end := time.Now().Add(matchLease + 10*matchPeriod); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if d, err := l.tickets.Depth(ctx, l.queue.Name); err == nil && d.Claimed+d.Matched+d.Pending == 0 {
			return
		}
	}
}

// finished is a hook: a match has got its seats, or found none.
func (l *lobby) finished(i match.FinishInfo) {
	if i.Err != nil {
		l.noSeat.Add(1)
		return
	}
	l.placed.Add(1)
	l.spread.Add(int64(i.Match.Spread))
}

// reclaimed is a hook: a supervisor has looked.
func (l *lobby) reclaimed(i match.ReclaimInfo) {
	l.lapsed.Add(int64(i.Lapsed))
	if i.Returned+i.Pending > 0 {
		l.meters.log.Put(statuspoller.Event{Kind: statuspoller.KindNote, Text: fmt.Sprintf(
			"a match worker is gone: %s of it wait again, %s of it finished", chaos.Count(i.Returned, "ticket"),
			matches(i.Pending))})
	}
}

func matches(n int) string {
	if n == 1 {
		return "1 match"
	}
	return fmt.Sprintf("%d matches", n)
}

// offer announces the seats of each tile for its owner, for as long as the owner serves and its process runs. A host
// that is a process of its own would do so for its tiles.
func (l *lobby) offer(ctx context.Context) error {
	info := map[string]string{"relay": l.view, "gateway": l.intents}
	for {
		for _, id := range l.world {
			h := l.hosts.owner(id)
			if h == nil || !h.line.Is(faultinject.Flowing) {
				continue // its last offer ends
			}
			o := match.Offer{Tile: id, Epoch: h.status(id).Epoch, Contact: h.Contact(), Info: info, Seats: seatsPerTile}
			if _, err := l.store.Offer(ctx, l.pool, o, offerTTL); err != nil && !errors.Is(err, match.ErrStaleOffer) {
				l.logger.Warn("seats were not offered", "tile", id, "error", err) // again in a moment
			}
		}
		if !wait.For(ctx, offerEvery) {
			return nil
		}
	}
}

// look brings what the page shows up to date. It is no part of the poller's Run, because the servers may be paused.
func (l *lobby) look(ctx context.Context) error {
	for swept := time.Now(); ; {
		if s, err := l.status(ctx); err == nil {
			l.mu.Lock()
			l.shown = s
			l.mu.Unlock()
		}
		if time.Since(swept) > match.Kept/10 {
			_, _, _ = l.sweep(ctx) // tickets that nobody follows are forgotten later
			swept = time.Now()
		}
		if !wait.For(ctx, statuspoller.Every) {
			return nil
		}
	}
}

func (l *lobby) status(ctx context.Context) (*statuspoller.Lobby, error) {
	d, err := l.tickets.Depth(ctx, l.queue.Name)
	if err != nil {
		return nil, err
	}
	s := &statuspoller.Lobby{Created: d.Created, Waiting: d.Waiting, Matching: d.Claimed + d.Matched, Seated: d.Seated,
		Cancelled: d.Cancelled, TimedOut: d.TimedOut, Matches: l.placed.Load(), NoSeat: l.noSeat.Load(),
		Workers: len(l.living()), Killed: l.killed.Load()}
	w := l.waits.Latency()
	s.Wait = statuspoller.Latency{P50: w.P50, P99: w.P99, Samples: int(w.Count)}
	longest, err := l.tickets.List(ctx, l.queue.Name, 1)
	if err != nil {
		return nil, err
	}
	for _, t := range longest {
		s.Longest = &statuspoller.Ticket{ID: t.Ticket.ID, Players: names(t.Ticket), Rating: t.Ticket.Rating,
			Waited: t.Waited.Milliseconds(), Why: t.Why.String()}
	}
	tiles, err := l.store.Tiles(ctx, l.pool)
	for _, id := range l.world {
		if i := slices.IndexFunc(tiles, func(t match.Load) bool { return t.Tile == id }); i >= 0 {
			t := tiles[i]
			s.Tiles = append(s.Tiles, statuspoller.Seats{Tile: id, Seats: t.Seats, Used: t.Used, Serving: t.Serving})
		}
	}
	return s, err
}

func names(t match.Ticket) (all []string) {
	for _, p := range t.Players {
		all = append(all, p.ID)
	}
	return all
}

// shows is what the page shows of a lobby; nil without one.
func (l *lobby) shows() *statuspoller.Lobby {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shown
}

// seat is one seat of a tile.
type seat struct {
	tile   fence.TileID
	number int
}
