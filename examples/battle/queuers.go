package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	random "math/rand/v2"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/relay/session"
)

// queuer is a player, or two friends, who come through the lobby again and again: they ask for a match at the entrance,
// follow their ticket, play for a while on the tile that they get, and leave.
type queuer struct {
	*plan
	cfg      *players.Config
	entrance string // URL of the lobby
	number   uint64
	guests   []guestView // with names to sign in under, and then as the lobby has named them; the first one asks
	rating   int
	rng      *random.Rand
}

// Habits of queuers.
const (
	pairEvery      = 4  // one in so many comes with a friend
	cancelOne      = 8  // one ticket in so many is cancelled before long
	missOne        = 15 // one seat in so many is not taken in time
	playAtLeast    = 6 * time.Second
	playAtMost     = 16 * time.Second
	leaveWithin    = 10 * time.Second
	requestTimeout = 3 * time.Second
)

// queueUp lets the players of the lobby come and go until ctx ends.
func (l *lobby) queueUp(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	own := l.playing(l.view, l.intents)
	own.Measures, own.Delivered = players.NewMeasures(), nil // the battle's figures are those of its own bots
	for i := range l.options.lobby {
		q := &queuer{plan: l.plan, cfg: own, entrance: l.secure.url("http", l.watchers.Addr().String()),
			number: uint64(i),
			guests: []guestView{{Actor: fmt.Sprintf("guest%03d", i)}},
			rng:    random.New(random.NewPCG(l.options.seed, 0x10bb9<<32|uint64(i)))}
		q.rating = 1500 + int(200*q.rng.NormFloat64())
		if i%pairEvery == 0 {
			q.guests = append(q.guests, guestView{Actor: q.guests[0].Actor + "b"})
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
	return wait.For(ctx, least+time.Duration(q.rng.Int64N(int64(most-least))))
}

// visit asks for one match, and plays it if it comes.
func (q *queuer) visit(ctx context.Context) {
	want := ticketRequest{Rating: q.rating}
	for i := range q.guests {
		g := &q.guests[i] // a token that it has is renewed
		if !q.insist(ctx, g.Token, http.MethodPost, guestPath+g.Actor, nil, g) {
			return
		}
		if i > 0 {
			want.Friends = append(want.Friends, g.Token)
		}
	}
	id := rand.Text()
	if !q.insist(ctx, q.guests[0].Token, http.MethodPut, ticketPath+id, want, nil) {
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
		q.insist(ctx, q.guests[0].Token, http.MethodDelete, ticketPath+id, nil, nil)
	}
}

// await follows a ticket until it has a seat or ends.
func (q *queuer) await(ctx context.Context, id string) (t ticketView, err error) {
	//nolint:bodyclose // the library says that there is no need
	c, _, err := websocket.Dial(ctx, q.entrance+ticketPath+id, &websocket.DialOptions{HTTPClient: q.secure.player(),
		HTTPHeader: session.WithToken(nil, q.guests[0].Token)})
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
	for _, guest := range q.guests {
		g.Go(func() error {
			b, err := q.bot(guest, t)
			if err == nil {
				err = b.Visit(stay, t.Relay, t.Gateway)
			}
			return err
		})
	}
	_ = g.Wait() // what it missed shows in whether they had their seats
	leaving, end := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer end()
	return q.insist(leaving, q.guests[0].Token, http.MethodPost, ticketPath+t.ID+"/leave", nil, nil)
}

// bot makes a bot for a guest's seat.
func (q *queuer) bot(guest guestView, t ticketView) (*players.Bot, error) {
	return players.NewGuest(guest.Actor, t.Tile, q.options.seed+q.number,
		func(context.Context) (string, error) { return guest.Token, nil },
		func(ctx context.Context) (string, error) {
			var own ticketView
			_, err := q.send(ctx, guest.Token, http.MethodGet, ticketPath+t.ID, nil, &own)
			return own.Token, err
		}, q.cfg)
}

// insist sends a guest's request to the entrance until it is answered: each may be repeated. It reports whether the
// answer was what was asked for; false also when ctx has ended.
func (q *queuer) insist(ctx context.Context, token, method, path string, body, answer any) bool {
	for {
		status, err := q.send(ctx, token, method, path, body, answer)
		if err == nil && status < http.StatusInternalServerError {
			return status < http.StatusBadRequest
		}
		if !q.pause(ctx, 100*time.Millisecond, 300*time.Millisecond) {
			return false
		}
	}
}

// send sends a request once, and reads its answer unless that is nil or a refusal.
func (q *queuer) send(ctx context.Context, token, method, path string, body, answer any) (status int, err error) {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(bounded, method, q.entrance+path, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	if token != "" {
		request.Header = session.WithToken(request.Header, token)
	}
	response, err := q.secure.player().Do(request)
	if err != nil {
		return 0, err
	}
	if answer != nil && response.StatusCode == http.StatusOK {
		err = json.NewDecoder(response.Body).Decode(answer)
	}
	return response.StatusCode, errors.Join(err, response.Body.Close())
}
