package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/admission/match/matchhttp"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/internal/benchmark/census"
	"github.com/tilefence/tilefence/internal/benchmark/measure"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/relay/session"
)

// visitor asks the entrance of a lobby, as a program of a player would.
type visitor struct {
	*testing.T
	entrance string // URL
	guest    guestView
}

// as is a visitor who has signed in.
func (v visitor) as(name string) visitor {
	v.Helper()
	require.Equal(v, http.StatusOK, v.request("POST", guestPath+name, "", &v.guest))
	return v
}

// ask sends a request about a ticket. The status is that of the answer; the ticket is zero if it was refused.
func (v visitor) ask(method, path, body string) (ticket matchhttp.Ticket, status int) {
	v.Helper()
	return ticket, v.request(method, ticketPath+path, body, &ticket)
}

func (v visitor) request(method, path, body string, answer any) (status int) {
	v.Helper()
	request, err := http.NewRequestWithContext(v.Context(), method, v.entrance+path, strings.NewReader(body))
	require.NoError(v, err)
	if v.guest.Token != "" {
		request.Header = session.WithToken(nil, v.guest.Token)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(v, err)
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		require.NoError(v, json.NewDecoder(response.Body).Decode(answer))
	}
	return response.StatusCode
}

// follow opens a ticket's WebSocket.
func (v visitor) follow(ctx context.Context, id string) (*websocket.Conn, error) {
	//nolint:bodyclose // the library says that there is no need
	c, _, err := websocket.Dial(ctx, v.entrance+ticketPath+id, &websocket.DialOptions{
		HTTPHeader: session.WithToken(nil, v.guest.Token)})
	return c, err
}

// await follows a ticket until it is in a state.
func (v visitor) await(id, state string) (ticket matchhttp.Ticket) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), time.Minute)
	defer cancel()
	c, err := v.follow(ctx, id)
	require.NoError(v, err)
	defer func() { _ = c.CloseNow() }() // nothing more is wanted of it
	for ticket.State != state {
		require.NoError(v, wsjson.Read(ctx, c, &ticket), "last %+v", ticket)
	}
	return ticket
}

// enter deploys a battle without players and opens its lobby's entrance.
func enter(t *testing.T, args ...string) (*deployment, visitor) {
	d := deploy(t, append([]string{"-tiles", "2", "-hosts", "2", "-tick", "100ms"}, args...)...)
	waittest.Until(t, func() bool { return len(d.lobby.shows().Tiles) == 2 }, time.Minute, 20*time.Millisecond,
		"not every tile offers seats")
	return d, visitor{T: t, entrance: "http://" + d.watchers.Addr().String()}
}

func TestLobbyFromTheEntranceToTheSeat(t *testing.T) {
	t.Parallel()
	d, v := enter(t)
	ann, bob, zoe := v.as("ann"), v.as("bob"), v.as("zoe")
	for i, p := range []visitor{ann, bob} {
		id := p.guest.Actor[:3]
		ticket, status := p.ask("PUT", id, fmt.Sprintf(`{"rating":%d}`, 1500+i))
		require.Equal(t, http.StatusOK, status)
		assert.Equal(t, id, ticket.ID)
	}
	again, status := ann.ask("PUT", "ann", `{"rating":1500}`)
	require.Equal(t, http.StatusOK, status, "a request that is repeated is the same ticket")
	assert.Equal(t, "ann", again.ID)

	seated := ann.await("ann", "seated")
	assert.Contains(t, d.world, seated.Tile)
	assert.Equal(t, d.view, seated.Relay)
	require.Len(t, seated.Seats, 1)
	other := bob.await("bob", "seated")
	assert.Equal(t, seated.Tile, other.Tile)
	_, status = ann.ask("POST", "ann/leave", "")
	assert.Equal(t, http.StatusGone, status, "there is no seat to leave before it was taken")
	for _, token := range []string{seated.Token, other.Token} {
		player, err := enterWith(t, d, token)
		require.NoError(t, err)
		defer player.Close()
	}
	used := func() (n int) {
		for _, s := range d.lobby.shows().Tiles {
			n += s.Used
		}
		return n
	}
	time.Sleep(seatHold + 2*matchPeriod)
	assert.Equal(t, 2, used(), "seats that were taken do not lapse")
	_, status = ann.ask("POST", "ann/leave", "")
	assert.Equal(t, http.StatusOK, status)
	waittest.Until(t, func() bool { return used() == 1 }, time.Minute, 20*time.Millisecond)

	_, status = zoe.ask("PUT", "zoe", `{"rating":1500}`)
	require.Equal(t, http.StatusOK, status)
	cancelled, status := zoe.ask("DELETE", "zoe", "")
	require.Equal(t, http.StatusOK, status)
	assert.Equal(t, "cancelled", cancelled.State)
	_, status = zoe.ask("PUT", "zoe", `{"rating":1500}`)
	assert.Equal(t, http.StatusConflict, status, "a new request takes a new ID")
	token, err := d.token(zoe.guest.Actor, "zoe", time.Minute)
	require.NoError(t, err)
	refusedAtTheGateway(t, d, token) // a cancelled ticket has no seat

	_, status = zoe.ask("PUT", "old", `{"rating":9000}`)
	require.Equal(t, http.StatusOK, status)
	_, status = zoe.ask("PUT", "more", `{"rating":9000}`)
	assert.Equal(t, http.StatusConflict, status, "a player has one open ticket")
	r, err := d.lobby.report(t.Context())
	require.NoError(t, err)
	assert.Empty(t, r.Why)
	assert.Equal(t, []uint64{4, 2, 1, 1, 0}, []uint64{r.Created, r.Seated, r.Cancelled, r.Waiting, r.TimedOut})
	require.ErrorIs(t, (&measure.Report{Converged: true, Lobby: &census.Report{Why: "x"}}).Verdict(), census.ErrLobby)
	_, status = zoe.ask("PUT", "late", `{"rating":1500}`)
	assert.Equal(t, http.StatusServiceUnavailable, status, "the battle is over")
}

func TestLobbyRefusesWhatItCannotServe(t *testing.T) {
	t.Parallel()
	_, v := enter(t)
	a, b, c := v.as("a"), v.as("b"), v.as("c")
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"PUT", "a", "", http.StatusBadRequest},
		// A team has two.
		{"PUT", "a", fmt.Sprintf(`{"friends":[%q,%q]}`, b.guest.Token, c.guest.Token), http.StatusBadRequest},
		{"PUT", "a", fmt.Sprintf(`{"friends":[%q]}`, a.guest.Token), http.StatusBadRequest},
		{"PUT", "a", `{"rating":2000000000}`, http.StatusBadRequest},
		{"PUT", "a%20b", `{}`, http.StatusBadRequest},
		{"GET", "nobody", "", http.StatusNotFound},
		{"DELETE", "nobody", "", http.StatusNotFound},
		{"POST", "nobody/leave", "", http.StatusNotFound},
		{"POST", "a", "", http.StatusMethodNotAllowed},
	} {
		_, status := a.ask(c.method, c.path, c.body)
		assert.Equal(t, c.want, status, "%s %s %s", c.method, c.path, c.body)
	}
	for _, name := range []string{"bot0001", strings.Repeat("a", session.MaxActor-guestText), "a%00b"} {
		assert.Equal(t, http.StatusBadRequest, v.request("POST", guestPath+name, "", nil), name)
	}
}

// TestASeatThatIsNotTakenGoesBack: the ticket waits again, and gets another seat.
func TestASeatThatIsNotTakenGoesBack(t *testing.T) {
	t.Parallel()
	d, v := enter(t)
	ann := v.as("ann")
	for id, p := range map[string]visitor{"ann": ann, "bob": v.as("bob")} {
		_, status := p.ask("PUT", id, `{"rating":1500}`)
		require.Equal(t, http.StatusOK, status)
	}
	first := ann.await("ann", "seated")
	waittest.Until(t, func() bool {
		s, err := d.lobby.tickets.Status(t.Context(), d.lobby.queue.Name, "ann")
		return err == nil && s.Assignment != nil && s.Assignment.TakeBy.UnixMilli() > first.TakeBy
	}, time.Minute, 20*time.Millisecond, "it never got another seat")
	_, _, lapsed := d.lobby.census.Matches()
	assert.Positive(t, lapsed)
}

// TestAMatchWorkerDies with tickets claimed, or with a match recorded: they have their seats within its lease and a
// supervisor's period, and a little.
func TestAMatchWorkerDies(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]faultinject.Step{
		"with a claim": faultinject.Claiming, "with a match": faultinject.Recording} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, v := enter(t, "-chaos", "-chaos-every", "1h")
			for _, w := range d.lobby.workers.Living()[1:] {
				d.lobby.workers.Kill(w, after) // with empty hands: no player has come yet
			}
			w := d.lobby.workers.Living()[0]
			w.DieAfter(after)
			players := map[string]visitor{} // enough for a match at once
			for _, name := range []string{"ann", "bob", "eve", "joe"} {
				players[name] = v.as(name)
				_, status := players[name].ask("PUT", name, `{"rating":1500}`)
				require.Equal(t, http.StatusOK, status)
			}
			waittest.Until(t, func() bool { return w.Line.Is(faultinject.Dead) }, time.Minute, time.Millisecond)
			d.lobby.workers.Kill(w, after)
			died, hands := w.Died()
			require.NotEmpty(t, hands)
			require.NoError(t, d.lobby.workers.Hire())
			for name, p := range players {
				p.await(name, "seated")
			}
			t.Logf("seated %v after the death", time.Since(died))
			assert.Greater(t, time.Since(died), matchLease-matchLease/3, "not before its lease has ended")
			assert.True(t, d.lobby.workers.Free(t.Context(), w))
		})
	}
}

// enterWith connects to the gateway with a token.
func enterWith(t *testing.T, d *deployment, token string) (*gatewayws.Client, error) {
	return gatewayws.Dial(t.Context(), d.intents, &gatewayws.DialConfig{
		Token: func(context.Context) (string, error) { return token, nil }})
}

// refusedAtTheGateway wants a signed token to give no seat.
func refusedAtTheGateway(t *testing.T, d *deployment, token string) {
	t.Helper()
	c, err := enterWith(t, d, token)
	require.NoError(t, err)
	select {
	case <-c.Done():
	case <-time.After(time.Minute):
		t.Error("it is connected still")
	}
}

// A name needs its token, whether it is given in the query or comes by the lobby.
func TestNobodyPlaysAsAnother(t *testing.T) {
	t.Parallel()
	d, _ := enter(t)
	forged, err := game.PlayerKeys("another secret").Sign(session.Identity{Actor: "bot0001",
		Expires: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	for _, token := range []string{"", "bot0001", forged} {
		_, err := gatewayws.Dial(t.Context(), d.intents+"?actor=bot0001", &gatewayws.DialConfig{
			Token: func(context.Context) (string, error) { return token, nil }})
		require.ErrorContains(t, err, "401")
	}
	_, err = relayclient.Dial(t.Context(), d.view, &relayclient.Config{
		Token: func(context.Context) (string, error) { return forged, nil }})
	require.ErrorContains(t, err, "401")
}

// TestNobodyTakesAGuestsPlace: a stranger who knows a guest's name and the ID of her ticket gets neither the one nor
// the other, and cannot take, cancel or leave her seat.
func TestNobodyTakesAGuestsPlace(t *testing.T) {
	t.Parallel()
	d, v := enter(t)
	ann, bob, eve := v.as("ann"), v.as("bob"), v.as("eve")
	require.NotEqual(t, ann.guest.Actor, v.as("ann").guest.Actor, "another ann")
	require.NotEqual(t, ann.guest.Actor, v.as(ann.guest.Actor).guest.Actor, "a second player who gives the same name")
	renewed := ann
	require.Equal(t, http.StatusOK, ann.request("POST", guestPath+"bob", "", &renewed.guest))
	require.Equal(t, ann.guest.Actor, renewed.guest.Actor, "a token is renewed for its own name")

	forged, err := game.PlayerKeys("another secret").Sign(session.Identity{Actor: ann.guest.Actor,
		Expires: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	expired, err := d.token(ann.guest.Actor, "", -time.Second)
	require.NoError(t, err)
	for id, p := range map[string]visitor{"ann": ann, "bob": bob} {
		_, status := p.ask("PUT", id, `{"rating":1500}`)
		require.Equal(t, http.StatusOK, status)
	}
	steal := func(p visitor, want int, why string) {
		for method, path := range map[string]string{"GET": "ann", "DELETE": "ann", "POST": "ann/leave"} {
			_, status := p.ask(method, path, "")
			assert.Equal(t, want, status, "%s: %s", method, why)
		}
		_, err := p.follow(t.Context(), "ann")
		assert.ErrorContains(t, err, fmt.Sprint(want), why)
	}
	stranger := func(token string) visitor {
		return visitor{T: t, entrance: v.entrance, guest: guestView{Token: token}}
	}
	for why, token := range map[string]string{"no token": "", "a name": ann.guest.Actor, "forged": forged,
		"expired": expired} {
		steal(stranger(token), http.StatusUnauthorized, why)
		_, status := stranger(token).ask("PUT", "hers", `{"rating":1500}`)
		assert.Equal(t, http.StatusUnauthorized, status, why)
		_, status = eve.ask("PUT", "ours", fmt.Sprintf(`{"friends":[%q],"rating":1500}`, token))
		assert.Equal(t, http.StatusUnauthorized, status, why)
		if token != "" {
			assert.Equal(t, http.StatusUnauthorized, stranger(token).request("POST", guestPath+"ann", "", nil), why)
		}
	}
	steal(eve, http.StatusNotFound, "another guest's token")
	_, status := eve.ask("PUT", "ann", `{"rating":1500}`)
	assert.Equal(t, http.StatusConflict, status, "her ticket's ID")

	c, err := enterWith(t, d, ann.await("ann", "seated").Token) // within seatHold
	require.NoError(t, err)
	defer c.Close()
	waittest.Until(t, func() bool {
		return d.lobby.census.Sits("ann")
	}, time.Minute, 10*time.Millisecond, "she never sat")
	steal(eve, http.StatusNotFound, "her seat")
	refusedAtTheGateway(t, d, eve.guest.Token)
	refusedAtTheGateway(t, d, ann.guest.Token) // she takes it with what her ticket shows
	_, status = ann.ask("POST", "ann/leave", "")
	assert.Equal(t, http.StatusOK, status, "it was hers all the time")
}

// TestPilots: planners whose calls take seconds fly ships of every tile. The tiles tick on, plans are applied, each
// request is charged once, and one that a killed planner was at ends.
func TestPilots(t *testing.T) {
	t.Parallel()
	d := deploy(t, "-tiles", "2", "-hosts", "2", "-tick", "50ms", "-clients", "8", "-lobby", "0")
	f, err := d.newFleet(d.view, d.intents)
	require.NoError(t, err)
	ctx, over := context.WithCancel(t.Context())
	played := make(chan error, 1)
	go func() { played <- f.Run(ctx, ctx) }()
	var kill *chaos.Injection
	breaker, workers := d.newChaos(), d.pilot.Status().Workers
	waittest.Until(t, func() bool { // once a worker is at a request
		kill, err = d.pilot.WorkerKilled().Choose(t.Context(), breaker)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, kill.Inject(t.Context()))
	require.NoError(t, kill.Repair(t.Context())) // when what it was at is over
	waittest.Until(t, func() bool {
		s := d.pilot.Status()
		return s.Applied > 5 && s.Billed > 5 && s.Tokens > 5
	}, time.Minute, 10*time.Millisecond)
	s := d.pilot.Status()
	require.Equal(t, []int{4, workers, 1}, []int{s.Ships, s.Workers, s.Killed})
	require.Zero(t, s.Dead)
	for i, status := range d.poller.Status().Tiles { // while calls are under way: ticks follow each other
		waittest.Until(t, func() bool {
			return d.pilot.Status().Running > 0 && d.poller.Status().Tiles[i].Tick >= status.Tick+20
		}, time.Minute, 10*time.Millisecond, status.Tile)
	}
	over()
	require.NoError(t, <-played)
}
