package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/matchhttp"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/census"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/relay/session"
)

// The matchmaking of a battle: how many run, and for how long things last. A battle is short, so all is quicker than
// the defaults.
const (
	matchServers = 2
	matchLease   = 2 * time.Second
	matchPeriod  = time.Second
	seatHold     = 3 * time.Second // for a player to come to the gateway
	seatsPerTile = 4
)

// lobby is the way from "find a match" to a seat on a tile: match servers, and the entrance (entrance.go) where players
// ask.
type lobby struct {
	*deployment
	queue   match.Queue
	tickets *match.Lobby
	seats   *match.SeatAllocator
	handler http.Handler                                  // of the entrance
	enter   func(context.Context, session.Identity) error // takes a player's seats

	census  *census.Census // of the tickets
	workers *chaos.MatchWorkers
	stop    func() // of the looks
	shown   atomic.Pointer[statuspoller.Lobby]
}

// newLobby makes the lobby of a battle. Its queue and its pool of seats are the battle's own, also where servers
// are shared.
func (d *deployment) newLobby() (*lobby, error) {
	name := "battle-" + rand.Text()[:8]
	d.backends.Seats = name
	l := &lobby{deployment: d}
	l.shown.Store(&statuspoller.Lobby{})
	// Two teams of two; pairs if no other player comes for a while.
	l.queue = match.Queue{Name: name, Min: 2, Max: 4, Teams: 2, Patience: 3 * time.Second,
		MaxWait: time.Minute, Room: 2000, Strategy: match.Window{Initial: 100, Growth: 40}}
	var err error
	if l.seats, err = match.NewSeatAllocator(d.backends.Matches, name, seatHold); err != nil {
		return nil, err
	}
	if l.tickets, err = match.NewLobby(d.backends.Matches, l.queue); err != nil {
		return nil, err
	}
	l.census = census.New(l.tickets, l.queue.Name)
	l.enter = matchhttp.Enter(l.tickets, name, l.seats)
	cfg := tilefence.MatchServerConfig{Allocator: l.seats, Logger: l.logger, DecisionLog: l.decisions,
		Worker:     match.WorkerConfig{Lease: matchLease, Drain: time.Second},
		Supervisor: match.SupervisorConfig{Period: matchPeriod, Hooks: match.Hooks{Reclaimed: l.reclaimed}}}
	cfg.Worker.Hooks.Finished, cfg.Supervisor.Hooks.Finished = l.census.Finished, l.census.Finished
	l.workers = &chaos.MatchWorkers{Backends: d.backends.Backends, Queue: l.queue, Tickets: l.tickets, Start: l.start,
		Config: cfg}
	l.handler, err = l.entrance()
	return l, err
}

// open starts the match servers.
func (l *lobby) open() error {
	for range matchServers {
		if err := l.workers.Hire(); err != nil {
			return err
		}
	}
	l.stop = l.start(l.look)
	return nil
}

// queueUp lets players come and go until ctx ends. The battle's figures are those of its own bots alone.
func (l *lobby) queueUp(ctx context.Context) error {
	cfg := l.playing(l.view, l.intents)
	cfg.Measures, cfg.Delivered = players.NewMeasures(), nil
	at := l.secure.URL("http", l.watchers.Addr().String())
	return players.QueueUp(ctx, l.options.lobby,
		players.Entrance{Guests: at + guestPath, Tickets: at + ticketPath, SeatHold: seatHold}, cfg)
}

// close stops what open and hire have started, and finishes what the match servers have left.
func (l *lobby) close(ctx context.Context) {
	l.workers.Close()
	l.settle(ctx)
	l.stop()
}

// settle supervises until all that dead workers held has been returned or finished.
func (l *lobby) settle(ctx context.Context) {
	s, err := match.NewSupervisor(l.backends.Matches, l.workers.Config.Allocator, []match.Queue{l.queue},
		&l.workers.Config.Supervisor)
	for end := time.Now().Add(matchLease + 10*matchPeriod); err == nil && time.Now().Before(end); {
		if d, err := l.tickets.Depth(ctx, l.queue.Name); err == nil && d.Claimed+d.Matched+d.Pending == 0 {
			return
		}
		s.Once(ctx)
		wait.For(ctx, 50*time.Millisecond)
	}
}

// report closes the lobby and counts its tickets.
func (l *lobby) report(ctx context.Context) (*census.Report, error) {
	l.census.Close()
	l.close(ctx)
	r, err := l.census.Report(ctx)
	if err == nil {
		r.Killed = l.workers.Deaths()
	}
	return r, err
}

// reclaimed is a hook: a supervisor has looked.
func (l *lobby) reclaimed(i match.ReclaimInfo) {
	l.census.Reclaimed(i)
	if i.Returned+i.Pending > 0 {
		l.meters.Log.Put(statuspoller.Event{Kind: statuspoller.KindNote, Text: fmt.Sprintf(
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

// offers says what a tile offers to matches; nil without a lobby.
func (l *lobby) offers() func(fence.TileID) match.Offer {
	if l == nil {
		return nil
	}
	offer := match.Offer{Info: map[string]string{"relay": l.view, "gateway": l.intents}, Seats: seatsPerTile}
	return func(fence.TileID) match.Offer { return offer }
}

// look brings what the page shows up to date. It is no part of the poller's Run, because the servers may be paused.
func (l *lobby) look(ctx context.Context) error {
	for swept := time.Now(); ; {
		if s, err := l.status(ctx); err == nil {
			l.shown.Store(s)
		}
		if time.Since(swept) > match.Kept/10 {
			_, _, _ = l.census.Sweep(ctx) // tickets that no player follows are forgotten later
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
	placed, noSeat, _ := l.census.Matches()
	s := &statuspoller.Lobby{Created: d.Created, Waiting: d.Waiting, Matching: d.Claimed + d.Matched, Seated: d.Seated,
		Cancelled: d.Cancelled, TimedOut: d.TimedOut, Matches: placed, NoSeat: noSeat,
		Workers: len(l.workers.Living()), Killed: l.workers.Deaths()}
	w := l.census.Waits.Latency()
	s.Wait = statuspoller.Latency{P50: w.P50, P99: w.P99, Samples: int(w.Count)}
	longest, err := l.tickets.List(ctx, l.queue.Name, 1)
	if err != nil {
		return nil, err
	}
	for _, t := range longest {
		s.Longest = &statuspoller.Ticket{ID: t.Ticket.ID, Players: names(t.Ticket), Rating: t.Ticket.Rating,
			Waited: t.Waited.Milliseconds(), Why: t.Why.String()}
	}
	tiles, err := l.backends.Matches.Tiles(ctx, l.backends.Seats)
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
	return l.shown.Load()
}
