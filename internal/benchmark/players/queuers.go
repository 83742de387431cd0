package players

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

	"github.com/tilefence/tilefence/admission/match/matchhttp"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/relay/session"
)

// Entrance is where players ask for a match.
type Entrance struct {
	Guests, Tickets string        // URLs, to which a name or an ID is added
	SeatHold        time.Duration // for how long a seat is held
}

// guest is a player who has signed in; before that, the name to sign in under.
type guest struct {
	Actor string `json:"actor"`
	Token string `json:"token"`
}

// queuer is a player, or two friends, who come through the lobby again and again: they ask for a match at the entrance,
// follow their ticket, play for a while on the tile that they get, and leave.
type queuer struct {
	Entrance
	cfg    *Config
	number uint64
	guests []guest // the first one asks
	rating int
	rng    *random.Rand
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

// QueueUp lets so many players of a lobby come and go until ctx ends.
func QueueUp(ctx context.Context, players int, at Entrance, cfg *Config) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range players {
		q := &queuer{Entrance: at, cfg: cfg, number: uint64(i), guests: []guest{{Actor: fmt.Sprintf("guest%03d", i)}},
			rng: random.New(random.NewPCG(cfg.Seed, 0x10bb9<<32|uint64(i)))}
		q.rating = 1500 + int(200*q.rng.NormFloat64())
		if i%pairEvery == 0 {
			q.guests = append(q.guests, guest{Actor: q.guests[0].Actor + "b"})
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
	want := matchhttp.Request{Rating: q.rating}
	for i := range q.guests {
		g := &q.guests[i] // a token that it has is renewed
		if !q.insist(ctx, g.Token, http.MethodPost, q.Guests+g.Actor, nil, g) {
			return
		}
		if i > 0 {
			want.Friends = append(want.Friends, g.Token)
		}
	}
	id := rand.Text()
	if !q.insist(ctx, q.guests[0].Token, http.MethodPut, q.Tickets+id, want, nil) {
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
			q.pause(following, q.SeatHold, 2*q.SeatHold) // the seat goes back, and the ticket waits again
		case q.play(ctx, t):
			return
		}
	}
	if ctx.Err() == nil {
		q.insist(ctx, q.guests[0].Token, http.MethodDelete, q.Tickets+id, nil, nil)
	}
}

// await follows a ticket until it has a seat or ends.
func (q *queuer) await(ctx context.Context, id string) (t matchhttp.Ticket, err error) {
	//nolint:bodyclose // the library says that there is no need
	c, _, err := websocket.Dial(ctx, q.Tickets+id, &websocket.DialOptions{HTTPClient: q.cfg.HTTP,
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
func (q *queuer) play(ctx context.Context, t matchhttp.Ticket) bool {
	stay, cancel := context.WithTimeout(ctx, playAtLeast+time.Duration(q.rng.Int64N(int64(playAtMost-playAtLeast))))
	defer cancel()
	g, stay := errgroup.WithContext(stay)
	for _, from := range q.guests {
		g.Go(func() error {
			b, err := q.bot(from, t)
			if err == nil {
				err = b.Visit(stay, t.Relay, t.Gateway)
			}
			return err
		})
	}
	_ = g.Wait() // what it missed shows in whether they had their seats
	leaving, end := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer end()
	return q.insist(leaving, q.guests[0].Token, http.MethodPost, q.Tickets+t.ID+"/leave", nil, nil)
}

// bot makes a bot for a guest's seat.
func (q *queuer) bot(from guest, t matchhttp.Ticket) (*Bot, error) {
	return NewGuest(from.Actor, t.Tile, q.cfg.Seed+q.number,
		func(context.Context) (string, error) { return from.Token, nil },
		func(ctx context.Context) (string, error) {
			var own matchhttp.Ticket
			_, err := q.send(ctx, from.Token, http.MethodGet, q.Tickets+t.ID, nil, &own)
			return own.Token, err
		}, q.cfg)
}

// insist sends a guest's request to the entrance until it is answered: each may be repeated. It reports whether the
// answer was what was asked for; false also when ctx has ended.
func (q *queuer) insist(ctx context.Context, token, method, address string, body, answer any) bool {
	for {
		status, err := q.send(ctx, token, method, address, body, answer)
		if err == nil && status < http.StatusInternalServerError {
			return status < http.StatusBadRequest
		}
		if !q.pause(ctx, 100*time.Millisecond, 300*time.Millisecond) {
			return false
		}
	}
}

// send sends a request once, and reads its answer unless that is nil or a refusal.
func (q *queuer) send(ctx context.Context, token, method, address string, body, answer any) (status int, err error) {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(bounded, method, address, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	if token != "" {
		request.Header = session.WithToken(request.Header, token)
	}
	response, err := q.cfg.HTTP.Do(request)
	if err != nil {
		return 0, err
	}
	if answer != nil && response.StatusCode == http.StatusOK {
		err = json.NewDecoder(response.Body).Decode(answer)
	}
	return response.StatusCode, errors.Join(err, response.Body.Close())
}
