package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	random "math/rand/v2"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/region"
)

// queuer is a player, or two friends, who come through the lobby again and again: they ask for a match at the entrance,
// follow their ticket, play for a while on the tile that they get, and leave.
type queuer struct {
	*plan
	entrance string // URL
	number   uint64
	names    []string
	rating   int
	rng      *random.Rand
}

// Habits of queuers.
const (
	pairEvery   = 4  // one in so many comes with a friend
	cancelOne   = 8  // one ticket in so many is cancelled before long
	missOne     = 15 // one seat in so many is not taken in time
	playAtLeast = 6 * time.Second
	playAtMost  = 16 * time.Second
	leaveWithin = 10 * time.Second
)

// queueUp lets the players of the lobby come and go until ctx ends.
func (l *lobby) queueUp(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	// Their own meters: the battle's figures are those of its own bots.
	own := &plan{options: l.options, backends: l.backends, world: l.world, meters: newMeters(), logger: l.logger,
		errs: io.Discard, fail: l.plan.fail, secure: l.secure}
	for i := range l.options.lobby {
		q := &queuer{plan: own, entrance: l.secure.url("http", l.watchers.Addr().String()+lobbyPath), number: uint64(i),
			names: []string{fmt.Sprintf("guest%03d", i)},
			rng:   random.New(random.NewPCG(l.options.seed, 0x10bb9<<32|uint64(i)))}
		q.rating = 1500 + int(200*q.rng.NormFloat64())
		if i%pairEvery == 0 {
			q.names = append(q.names, q.names[0]+"b")
		}
		g.Go(func() error {
			for q.pause(ctx, 0, 3*time.Second) {
				q.visit(ctx)
			}
			return nil
		})
	}
	return g.Wait()
}

// pause waits a random time, or returns false when ctx ends.
func (q *queuer) pause(ctx context.Context, least, most time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(least + time.Duration(q.rng.Int64N(int64(most-least)))):
		return true
	}
}

// visit asks for one match, and plays it if it comes.
func (q *queuer) visit(ctx context.Context) {
	id := rand.Text()
	if !q.insist(ctx, http.MethodPut, id, ticketRequest{q.names, q.rating}) {
		return
	}
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	if q.rng.IntN(cancelOne) == 0 {
		following, cancel = context.WithTimeout(ctx, time.Duration(q.rng.Int64N(int64(3*time.Second))))
		defer cancel()
	}
	missed := false
	for following.Err() == nil {
		t, err := q.await(following, id)
		switch {
		case err != nil:
			q.pause(following, 100*time.Millisecond, 500*time.Millisecond) // the connection was lost, or refused
		case t.State != "seated":
			return // cancelled or timed out
		case !missed && q.rng.IntN(missOne) == 0:
			missed = true
			q.pause(following, seatHold, 2*seatHold) // the seat goes back, and the ticket waits again
		case q.play(ctx, t):
			return
		}
	}
	if ctx.Err() == nil {
		q.insist(ctx, http.MethodDelete, id, nil)
	}
}

// await follows a ticket until it has a seat or ends.
func (q *queuer) await(ctx context.Context, id string) (t ticketView, err error) {
	//nolint:bodyclose // the library says that there is no need
	c, _, err := websocket.Dial(ctx, q.entrance+id, &websocket.DialOptions{HTTPClient: q.secure.player()})
	if err != nil {
		return t, err
	}
	defer func() { _ = c.CloseNow() }() // nothing more is wanted of it
	for t.State != "seated" && t.State != "cancelled" && t.State != "timed out" {
		if err := wsjson.Read(ctx, c, &t); err != nil {
			return t, err
		}
	}
	return t, nil
}

// play lets the ticket's players play on their tile for a while and leave. It returns false if they came too late.
func (q *queuer) play(ctx context.Context, t ticketView) bool {
	stay, cancel := context.WithTimeout(ctx, playAtLeast+time.Duration(q.rng.Int64N(int64(playAtMost-playAtLeast))))
	defer cancel()
	g, stay := errgroup.WithContext(stay)
	for _, name := range q.names {
		g.Go(func() error {
			b, err := q.guest(name, t)
			if err == nil {
				err = b.run(stay, stay, t.Relay, t.Gateway, begun)
			}
			return err
		})
	}
	_ = g.Wait() // what it missed shows in whether they had their seats
	leaving, end := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer end()
	return q.insist(leaving, http.MethodPost, t.ID+"/leave", nil)
}

// begun is for bots that need not wait for others.
func begun() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// guest makes a bot for a seat. It has no cards, so nothing of it is in the ledger but its welcome.
func (q *queuer) guest(name string, t ticketView) (*bot, error) {
	ground, err := region.Of(t.Tile)
	if err != nil {
		return nil, err
	}
	view, err := game.NewView(ground)
	if err != nil {
		return nil, err
	}
	brain := game.NewBot(name, ground, q.options.seed+q.number, &game.BotConfig{FirstDraw: fence.Tick(1) << 40})
	return &bot{plan: q.plan, actor: name, ticket: t.ID, tile: t.Tile, brain: brain, view: view}, nil
}

// insist sends a request to the entrance until it is answered: each may be repeated. It reports whether the answer was
// what was asked for; false also when ctx has ended.
func (q *queuer) insist(ctx context.Context, method, id string, body any) bool {
	for {
		status, err := q.send(ctx, method, id, body)
		if err == nil && status < http.StatusInternalServerError {
			return status < http.StatusBadRequest
		}
		if !q.pause(ctx, 100*time.Millisecond, 300*time.Millisecond) {
			return false
		}
	}
}

// send sends a request once.
func (q *queuer) send(ctx context.Context, method, id string, body any) (status int, err error) {
	bounded, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(bounded, method, q.entrance+id, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	response, err := q.secure.player().Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}
