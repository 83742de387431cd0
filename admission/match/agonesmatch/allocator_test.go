package agonesmatch_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/agonesmatch"
	"github.com/tilefence/tilefence/admission/match/memmatch"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

const tile fence.TileID = 0x85283473fffffff

var fleet = map[string]string{"agones.dev/fleet": "battles"}

func place(_ match.Match, g agonesmatch.GameServer) (fence.TileID, map[string]string) {
	return tile, map[string]string{"gateway": fmt.Sprintf("ws://%s:%d/intent", g.Address, g.Ports[0].Port)}
}

// duel is a match of a pair and a single player.
func duel(id string) match.Match {
	return match.Match{ID: id, Queue: "q", Shard: "q/0", Tickets: []match.Ticket{
		{ID: "t1", Players: []match.Player{{ID: "ann"}, {ID: "bob"}}},
		{ID: "t2", Players: []match.Player{{ID: "eve"}}}}}
}

func open(t *testing.T, a *api) *agonesmatch.Allocator {
	t.Helper()
	all, err := agonesmatch.New(fleet, place, a.config())
	require.NoError(t, err)
	return all
}

// one allocates one match.
func one(t *testing.T, all *agonesmatch.Allocator, m match.Match) (match.Assignment, error) {
	t.Helper()
	answers := all.Allocate(t.Context(), []match.Match{m})
	require.Len(t, answers, 1)
	return answers[0].Assignment, answers[0].Err
}

// TestAllocate: a match gets a game server, which knows the match; another match another one; and there is no third.
func TestAllocate(t *testing.T) {
	a := start(t, 2)
	all := open(t, a)
	began := time.Now()
	s, err := one(t, all, duel("m1"))
	require.NoError(t, err)
	assert.WithinDuration(t, began.Add(30*time.Second), s.TakeBy, 10*time.Second)
	s.TakeBy = time.Time{}
	assert.Equal(t, match.Assignment{Match: "m1", Tile: tile, Contact: "203.0.113.7:7000",
		Info:  map[string]string{"gateway": "ws://203.0.113.7:7000/intent"},
		Seats: map[string][]int{"t1": {0, 1}, "t2": {2}}}, s)
	var told match.Match
	require.NoError(t, json.Unmarshal([]byte(a.servers[0].annotations[agonesmatch.AnnotationMatch]), &told))
	assert.Equal(t, duel("m1"), told)

	answers := all.Allocate(t.Context(), []match.Match{duel("m2"), duel("m1")})
	require.NoError(t, answers[0].Err)
	require.NoError(t, answers[1].Err)
	assert.Equal(t, 2, a.count("Allocated"), "a match that is asked for again has its game server")
	_, err = one(t, all, duel("m3"))
	require.ErrorIs(t, err, match.ErrNoSeat)
	backfill := duel("m2")
	backfill.Tile = tile
	_, err = one(t, all, backfill)
	require.ErrorIs(t, err, match.ErrNoSeat)
	lapses, err := all.Lapsed(t.Context(), 10)
	require.NoError(t, err)
	assert.Empty(t, lapses)
	require.NoError(t, all.Settled(t.Context(), lapses))
}

// TestALostAnswer: the match is asked for again, and has the game server that it got.
func TestALostAnswer(t *testing.T) {
	a := start(t, 3)
	a.lose = func(n int) bool { return n == 1 }
	all := open(t, a)
	_, err := one(t, all, duel("m1"))
	var failed *url.Error
	require.ErrorAs(t, err, &failed)
	require.NotErrorIs(t, err, match.ErrNoSeat, "it may have one")
	_, err = one(t, all, duel("m1"))
	require.NoError(t, err)
	assert.Equal(t, 1, a.count("Allocated"))
}

// TestRelease: a match that was dissolved loses its game server, and no other one does.
func TestRelease(t *testing.T) {
	a := start(t, 3)
	all := open(t, a)
	for _, id := range []string{"m1", "m2"} {
		_, err := one(t, all, duel(id))
		require.NoError(t, err)
	}
	for range 2 { // it may be repeated
		require.NoError(t, all.Release(t.Context(), duel("m1")))
		assert.Equal(t, []int{1, 1}, []int{a.count("Allocated"), a.count("Ready")})
	}
	cfg := a.config()
	cfg.Token = func() (string, error) { return "", nil }
	other, err := agonesmatch.New(fleet, place, cfg)
	require.NoError(t, err)
	var refused *agonesmatch.StatusError
	require.ErrorAs(t, other.Release(t.Context(), duel("m2")), &refused)
	assert.Equal(t, http.StatusForbidden, refused.Code)
}

// state answers with a state alone.
func state(w http.ResponseWriter, name string) bool {
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"status":{"state":%q,"gameServerName":""}}`, name)
	return true
}

// TestContention: it is asked again some times, and then it is not the same as no game server.
func TestContention(t *testing.T) {
	a := start(t, 1)
	a.answer = func(w http.ResponseWriter, n int) bool { return n <= 2 && state(w, "Contention") }
	all := open(t, a)
	_, err := one(t, all, duel("m1"))
	require.NoError(t, err)
	assert.Equal(t, 3, a.asked)
	a.answer = func(w http.ResponseWriter, _ int) bool { return state(w, "Contention") }
	_, err = one(t, all, duel("m2"))
	require.ErrorIs(t, err, agonesmatch.ErrContention)
	require.NotErrorIs(t, err, match.ErrNoSeat)
	assert.Equal(t, 6, a.asked)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, all.Allocate(ctx, []match.Match{duel("m2")})[0].Err, context.Canceled)
}

// TestRefusals: each status is a *StatusError with the words of the API server, and no outcome of the match.
func TestRefusals(t *testing.T) {
	a := start(t, 1)
	all := open(t, a)
	for code, reason := range map[int]string{400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound",
		422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"} {
		a.answer = func(w http.ResponseWriter, _ int) bool { refuse(w, code, reason); return true }
		_, err := one(t, all, duel("m1"))
		var refused *agonesmatch.StatusError
		require.ErrorAs(t, err, &refused, code)
		assert.Equal(t, agonesmatch.StatusError{What: "allocate match m1", Code: code, Reason: reason,
			Message: "no: " + reason}, *refused)
		require.NotErrorIs(t, err, match.ErrNoSeat)
	}
	a.answer = func(w http.ResponseWriter, _ int) bool {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = fmt.Fprint(w, "<html>\x1b[2J"+strings.Repeat("x", 4000))
		return true
	}
	_, err := one(t, all, duel("m1"))
	require.EqualError(t, err, "agones: allocate match m1: status 502")
}

// TestAServerThatHangs holds a match up for the time of a request.
func TestAServerThatHangs(t *testing.T) {
	hung := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hung) })
	all, err := agonesmatch.New(fleet, place, &agonesmatch.Config{Server: server.URL, Namespace: "games",
		Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	for _, answer := range all.Allocate(t.Context(), []match.Match{duel("m1"), duel("m2")}) {
		require.ErrorIs(t, answer.Err, context.DeadlineExceeded)
	}
}

// answers that cannot be, of match m1.
var nonsense = map[string]string{
	"empty": ``, "no JSON": `x`, "a list": `[]`, "no state": `{}`, "a state": `{"status":{"state":"Maybe"}}`,
	"no name":    `{"status":{"state":"Allocated","address":"203.0.113.7"}}`,
	"no address": `{"status":{"state":"Allocated","gameServerName":"g"}}`,
	"a URL":      `{"status":{"state":"Allocated","gameServerName":"g","address":"http://x/"}}`,
	"hidden":     `{"status":{"state":"Allocated","gameServerName":"g","address":"a\u202eb"}}`,
	"a port":     `{"status":{"state":"Allocated","gameServerName":"g","address":"a","ports":[{"port":65536}]}}`,
	"port zero":  `{"status":{"state":"Allocated","gameServerName":"g","address":"a","ports":[{"name":"x"}]}}`,
	"a text":     `{"status":{"state":"Allocated","gameServerName":"g","address":"a","ports":[{"port":"1"}]}}`,
	"another's match": `{"status":{"state":"Allocated","gameServerName":"g","address":"a",
		"metadata":{"labels":{"tilefence-match":"m2"}}}}`,
	"too long": `{"status":{"state":"Allocated","gameServerName":"g","address":"a","nodeName":"` +
		strings.Repeat("x", 1<<20) + `"}}`,
}

func TestNonsense(t *testing.T) {
	a := start(t, 1)
	all := open(t, a)
	for name, text := range nonsense {
		a.answer = func(w http.ResponseWriter, _ int) bool {
			_, _ = fmt.Fprint(w, text)
			return true
		}
		_, err := one(t, all, duel("m1"))
		require.ErrorIs(t, err, agonesmatch.ErrAnswer, name)
		require.NotErrorIs(t, err, match.ErrNoSeat, name)
	}
}

// FuzzParse: what is taken for an allocated game server is one that others can use.
func FuzzParse(f *testing.F) {
	for _, text := range nonsense {
		if len(text) < 1000 {
			f.Add([]byte(text))
		}
	}
	f.Add([]byte(`{"status":{"state":"Allocated","gameServerName":"g","address":"2001:db8::7","ports":[{"port":7}]}}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		g, state, err := agonesmatch.Parse(answer, "m1")
		switch {
		case err != nil:
			require.ErrorIs(t, err, agonesmatch.ErrAnswer)
		case state == "Allocated":
			require.True(t, fence.IsName(g.Name, 253) && fence.IsName(g.Address, 253))
			for _, p := range g.Ports {
				require.True(t, p.Port > 0 && p.Port < 1<<16)
			}
		default:
			require.Contains(t, []string{"UnAllocated", "Contention"}, state)
			require.Zero(t, g)
		}
	})
}

// TestLabels: what stands for a match is a label's value, and different for different matches.
func TestLabels(t *testing.T) {
	assert.Equal(t, "M4TCH-7", agonesmatch.Label("M4TCH-7"))
	seen := map[string]bool{}
	for _, id := range []string{"a:b", "a_b_", "-a", strings.Repeat("a", 64), "a:c", "m1"} {
		l := agonesmatch.Label(id)
		assert.Regexp(t, `^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`, l)
		assert.False(t, seen[l])
		seen[l] = true
	}
}

// TestInAPod: everything is the pod's, and the token is read anew for each request.
func TestInAPod(t *testing.T) {
	var tokens []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		assert.Contains(t, r.URL.Path, "/namespaces/games/")
		state(w, "UnAllocated")
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	agonesmatch.Account(dir)
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	t.Setenv("KUBERNETES_SERVICE_HOST", at.Hostname())
	t.Setenv("KUBERNETES_SERVICE_PORT", at.Port())
	_, err = agonesmatch.New(fleet, place, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("namespace", "games\n")
	write("ca.crt", "nothing")
	_, err = agonesmatch.New(fleet, place, nil)
	require.ErrorContains(t, err, "no certificate")
	write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	all, err := agonesmatch.New(fleet, place, nil)
	require.NoError(t, err)
	_, err = one(t, all, duel("m1"))
	require.ErrorIs(t, err, os.ErrNotExist, "there is no token")
	for _, token := range []string{"first\n", "second\n"} {
		write("token", token)
		_, err = one(t, all, duel("m1"))
		require.ErrorIs(t, err, match.ErrNoSeat)
	}
	assert.Equal(t, []string{"Bearer first", "Bearer second"}, tokens)
}

// TestSettings: New says what is wrong.
func TestSettings(t *testing.T) {
	good := agonesmatch.Config{Server: "https://localhost:1", Namespace: "games"}
	_, err := agonesmatch.New(fleet, place, &good)
	require.NoError(t, err)
	for name, bad := range map[string]func(c *agonesmatch.Config){
		"hold":      func(c *agonesmatch.Config) { c.Hold = time.Hour },
		"timeout":   func(c *agonesmatch.Config) { c.Timeout = -1 },
		"server":    func(c *agonesmatch.Config) { c.Server = "localhost:1" },
		"namespace": func(c *agonesmatch.Config) { c.Namespace = "../kube-system" },
	} {
		c := good
		bad(&c)
		_, err := agonesmatch.New(fleet, place, &c)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	_, err = agonesmatch.New(nil, place, &good)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = agonesmatch.New(map[string]string{"a": "b,c=d"}, place, &good)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = agonesmatch.New(fleet, nil, &good)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)

	a := start(t, 1)
	nowhere, err := agonesmatch.New(fleet, func(match.Match, agonesmatch.GameServer) (fence.TileID, map[string]string) {
		return 0, nil
	}, a.config())
	require.NoError(t, err)
	_, err = one(t, nowhere, duel("m1"))
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	large := duel("m2")
	large.Tickets[0].Attributes = map[string]string{"x": strings.Repeat("x", 201<<10)}
	_, err = one(t, nowhere, large)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	assert.Equal(t, 1, a.asked)
}

// TestMatches: from tickets to game servers, with two workers and two supervisors, while every third answer is lost,
// and others are contention or refused. Each ticket is in one match, and each match has one game server that its
// players are told; while Agones does not see its own allocations, there may be others, which players are not told of.
func TestMatches(t *testing.T) {
	for name, lags := range map[string]bool{"": false, "lagging": true} {
		t.Run(name, func(t *testing.T) {
			a := start(t, 10*pairs)
			a.lags = lags
			a.lose = func(n int) bool { return n%3 == 0 }
			a.answer = func(w http.ResponseWriter, n int) bool {
				if n%7 == 0 {
					refuse(w, http.StatusTooManyRequests, "TooManyRequests")
					return true
				}
				return n%5 == 0 && state(w, "Contention")
			}
			lobby := play(t, a)
			contacts := map[string]map[string]bool{} // by match
			for i := range 2 * pairs {
				s, err := lobby.Status(t.Context(), "q", fmt.Sprint("t", i))
				require.NoError(t, err)
				if contacts[s.Match] == nil {
					contacts[s.Match] = map[string]bool{}
				}
				contacts[s.Match][s.Assignment.Contact] = true
				at := slices.IndexFunc(a.servers, func(g *gameServer) bool {
					return s.Assignment.Contact == fmt.Sprint("203.0.113.7:", g.port)
				})
				assert.Contains(t, a.servers[at].annotations[agonesmatch.AnnotationMatch], fmt.Sprintf(`"t%d"`, i))
			}
			assert.Len(t, contacts, pairs)
			for _, of := range contacts {
				assert.Len(t, of, 1)
			}
			if lags {
				assert.Greater(t, a.count("Allocated"), pairs, "the stand-in does not lag")
			} else {
				assert.Equal(t, pairs, a.count("Allocated"))
			}
		})
	}
}

// pairs is how many matches play makes.
const pairs = 30

// play makes matches of pairs until all are seated.
func play(t *testing.T, a *api) *match.Lobby {
	store, queues := memmatch.New(), []match.Queue{{Name: "q", Max: 2}}
	lobby, err := match.NewLobby(store, queues...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 4)
	for range 2 {
		w, err := match.NewWorker(store, open(t, a), queues, &match.WorkerConfig{Lease: time.Second})
		require.NoError(t, err)
		s, err := match.NewSupervisor(store, open(t, a), queues, &match.SupervisorConfig{Period: 50 * time.Millisecond})
		require.NoError(t, err)
		go func() { done <- w.Run(ctx) }()
		go func() { done <- s.Run(ctx) }()
	}
	for i := range 2 * pairs {
		_, err := lobby.Enqueue(t.Context(), "q", match.Ticket{ID: fmt.Sprint("t", i),
			Players: []match.Player{{ID: fmt.Sprint("p", i)}}})
		require.NoError(t, err)
	}
	waittest.Until(t, func() bool {
		d, err := lobby.Depth(t.Context(), "q")
		return err == nil && d.Seated == 2*pairs
	}, time.Minute, 10*time.Millisecond)
	cancel()
	for range 4 {
		require.NoError(t, <-done)
	}
	return lobby
}
