package tilehttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

type accepterFunc func(context.Context, tile.Handover) error

func (f accepterFunc) Accept(ctx context.Context, h tile.Handover) error { return f(ctx, h) }

// given is a hand-over as an owner sends it.
func given(to string) tile.Handover {
	return tile.Handover{Tile: here, Epoch: 7, Position: fence.Position{Epoch: 7, Seq: 120, Chain: 0x9f86d081884c7d65},
		From: "a:7000", To: to}
}

// accept returns the contact of a process that answers hand-overs with f, and a client.
func accept(t testing.TB, f accepterFunc) (string, *tilehttp.Client) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(tilehttp.HandoverPath, tilehttp.HandoverHandler(f, nil))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return server.Listener.Addr().String(), client
}

func TestHandoverTravels(t *testing.T) {
	var got tile.Handover
	contact, client := accept(t, func(_ context.Context, h tile.Handover) error {
		got = h
		return nil
	})
	h := given(contact)
	h.From = "é🂡\"<>&"
	require.NoError(t, client.Handover(t.Context(), h))
	assert.Equal(t, h, got)
}

func TestHandoverErrorsTravel(t *testing.T) {
	var answer error
	contact, client := accept(t, func(context.Context, tile.Handover) error { return answer })
	for name, c := range map[string]struct {
		answer, want error
		unknown      bool
	}{
		"moved on": {answer: fmt.Errorf("host: %w", &tile.RedirectError{Tile: here, Epoch: 9, Contact: "c:1"}),
			want: &tile.RedirectError{Tile: here, Epoch: 9, Contact: "c:1"}},
		"lost": {answer: &fence.LostError{Tile: here,
			Current: fence.Grant{Tile: here, Epoch: 9, Contact: "c:1", ID: fence.NewClaimID()}},
			want: &fence.LostError{Tile: here, Current: fence.Grant{Tile: here, Epoch: 9, Contact: "c:1"}}},
		"ending": {answer: tile.ErrHostEnded, want: tile.ErrHostEnded},
		"argument": {answer: &fence.ArgumentError{Field: "to", Value: "x", Want: "y"},
			want: &fence.ArgumentError{Field: "to", Value: "x", Want: "y"}},
		"other":   {answer: errors.New("disk on fire"), unknown: true},
		"timeout": {answer: context.DeadlineExceeded, unknown: true},
		"store":   {answer: &fence.StoreError{Outcome: fence.ErrNotApplied, Err: errors.New("down")}, unknown: true},
	} {
		answer = c.answer
		err := client.Handover(t.Context(), given(contact))
		if c.want != nil {
			assert.Equal(t, c.want, err, name)
		}
		if c.unknown {
			require.ErrorIs(t, err, tilehttp.ErrUnavailable, name)
			require.ErrorIs(t, err, fence.ErrUnknownOutcome, name)
			require.NotErrorIs(t, err, fence.ErrNotApplied, name)
		}
	}
}

func TestHandoverThatCannotBeCarriedIsNotSent(t *testing.T) {
	_, client := accept(t, func(context.Context, tile.Handover) error {
		t.Error("sent")
		return nil
	})
	for _, change := range []func(*tile.Handover){
		func(h *tile.Handover) { h.Tile = 0 },
		func(h *tile.Handover) { h.Epoch = 0 },
		func(h *tile.Handover) { h.Epoch = fence.MaxNumber + 1 },
		func(h *tile.Handover) { h.Position.Epoch = 8 },
		func(h *tile.Handover) { h.Position.Seq = fence.MaxNumber + 1 },
		func(h *tile.Handover) { h.From = "" },
		func(h *tile.Handover) { h.From = "\xff" },
		func(h *tile.Handover) { h.To = "" },
		func(h *tile.Handover) { h.To = strings.Repeat("x", 256) },
		func(h *tile.Handover) { h.To = "\ufffd" },
	} {
		h := given("b:1")
		change(&h)
		require.ErrorIs(t, client.Handover(t.Context(), h), fence.ErrInvalidArgument, "%+v", h)
	}
}

func TestHandoverToNobody(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	contact := server.Listener.Addr().String()
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()
	err = client.Handover(t.Context(), given(contact))
	require.ErrorIs(t, err, fence.ErrUnknownOutcome, "an answer that is none of ours")
	server.Close()
	client.Close() // an idle connection would be found dead only after writing to it
	err = client.Handover(t.Context(), given(contact))
	require.ErrorIs(t, err, fence.ErrNotApplied)
	require.ErrorIs(t, err, tilehttp.ErrUnavailable)

	require.ErrorIs(t, client.Handover(t.Context(), given("no address")), fence.ErrNotApplied)
}

func TestHandoverTimeoutIsUnknown(t *testing.T) {
	entered := make(chan struct{})
	contact, client := accept(t, func(ctx context.Context, _ tile.Handover) error {
		close(entered)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	require.ErrorIs(t, client.Handover(ctx, given(contact)), fence.ErrUnknownOutcome)
}

const goldenHandover = `{"v":1,"tile":"85283473fffffff","epoch":7,"position":"7/120/9f86d081884c7d65",` +
	`"from":"a:7000","to":"b:7000"}`

func TestHandoverHandlerRefusesWhatItCannotRead(t *testing.T) {
	h := tilehttp.HandoverHandler(accepterFunc(func(_ context.Context, o tile.Handover) error {
		if err := o.Validate(); err != nil { // as tilehost.Host does
			return err
		}
		t.Errorf("accepted: %+v", o)
		return nil
	}), nil)
	for _, body := range []string{
		"", "null", "[]", "{}", goldenHandover + "{}", goldenHandover + strings.Repeat(" ", tilehttp.MaxRequest),
		strings.Replace(goldenHandover, `"v":1`, `"v":2`, 1),
		strings.Replace(goldenHandover, "85283473fffffff", "0", 1),
		strings.Replace(goldenHandover, `"epoch":7`, `"epoch":-7`, 1),
		strings.Replace(goldenHandover, `"epoch":7`, `"epoch":6`, 1),
		strings.Replace(goldenHandover, "7/120/", "7/", 1),
		strings.Replace(goldenHandover, "a:7000", "", 1), strings.Replace(goldenHandover, "b:7000", "", 1),
		strings.Replace(goldenHandover, "a:7000", `\ud800`, 1), strings.Replace(goldenHandover, "a:7000", "\xff", 1),
	} {
		status, reply := post(t, h, body)
		assert.Equal(t, http.StatusBadRequest, status, body)
		assert.Equal(t, "invalid", reply["error"].(map[string]any)["code"], body)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tilehttp.HandoverPath, nil))
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
}

// TestHandoverIgnoresUnknownFields: a newer release may send them while an upgrade rolls, in both directions.
func TestHandoverIgnoresUnknownFields(t *testing.T) {
	h := tilehttp.HandoverHandler(accepterFunc(func(_ context.Context, got tile.Handover) error {
		assert.Equal(t, given("b:7000"), got)
		return nil
	}), nil)
	w := httptest.NewRecorder()
	body := strings.Replace(goldenHandover, `"v":1`, `"v":1,"new":{"deep":[1]}`, 1)
	h.ServeHTTP(w, request(tilehttp.HandoverPath, body))
	assert.Equal(t, http.StatusOK, w.Code)
	client, err := tilehttp.NewClient(tilehttp.Config{}.With(
		tilehttp.Tuning{Transport: oneReply(`{"v":1,"serving":true,"new":1}`)}))
	require.NoError(t, err)
	require.NoError(t, client.Handover(t.Context(), given("b:7000")))
}

// TestHandoverGolden pins the format, both ways.
func TestHandoverGolden(t *testing.T) {
	var answer error
	h := tilehttp.HandoverHandler(accepterFunc(func(_ context.Context, got tile.Handover) error {
		assert.Equal(t, given("b:7000"), got)
		return answer
	}), nil)
	for want, err := range map[string]error{
		`200 {"v":1,"serving":true}`: nil,
		`421 {"v":1,"error":{"code":"redirect","message":"tile 85283473fffffff: tile is owned elsewhere: epoch 9 at c:1","tile":"85283473fffffff","epoch":9,"contact":"c:1"}}`: &tile.RedirectError{Tile: here,
			Epoch: 9, Contact: "c:1"},
		`409 {"v":1,"error":{"code":"lost","message":"tile 85283473fffffff: claim lost to c:1 at epoch 9","tile":"85283473fffffff","epoch":9,"contact":"c:1"}}`: &fence.LostError{Tile: here,
			Current: fence.Grant{Epoch: 9, Contact: "c:1"}},
		`503 {"v":1,"error":{"code":"ending","message":"tile host has ended"}}`: tile.ErrHostEnded,
		`503 {"v":1,"error":{"code":"unavailable","message":"fire"}}`:           errors.New("fire"),
	} {
		answer = err
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(tilehttp.HandoverPath, goldenHandover))
		assert.Equal(t, want, fmt.Sprint(w.Code, " ", w.Body.String()))
	}

	sent := &recordingTransport{}
	client, err := tilehttp.NewClient(tilehttp.Config{}.With(tilehttp.Tuning{Transport: sent}))
	require.NoError(t, err)
	require.NoError(t, client.Handover(t.Context(), given("b:7000")))
	assert.Equal(t, goldenHandover, sent.body)
	assert.Equal(t, "http://b:7000/tilefence/v1/handover", sent.url)
}

type recordingTransport struct{ url, body string }

func (r *recordingTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(q.Body)
	r.url, r.body = q.URL.String(), string(b)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"v":1,"serving":true}`)),
		Request: q, Header: http.Header{}}, err
}

func FuzzHandoverHandler(f *testing.F) {
	f.Add([]byte(goldenHandover))
	f.Add([]byte(`{"v":1,"tile":"1","from":"\ud800"}`))
	f.Add([]byte("\xff{}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		var got *tile.Handover
		h := tilehttp.HandoverHandler(accepterFunc(func(_ context.Context, h tile.Handover) error {
			if err := h.Validate(); err != nil {
				return err
			}
			got = &h
			return nil
		}), nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(tilehttp.HandoverPath, body))
		if got == nil {
			require.Equal(t, http.StatusBadRequest, w.Code)
			return
		}
		require.Equal(t, http.StatusOK, w.Code)
		// What was understood is what the client would have sent.
		again := &recordingTransport{}
		client, err := tilehttp.NewClient(tilehttp.Config{}.With(tilehttp.Tuning{Transport: again}))
		require.NoError(t, err)
		want := *got
		if route.ValidateAddress(want.To) != nil {
			want.To = "x:1"
		}
		require.NoError(t, client.Handover(t.Context(), want))
		h.ServeHTTP(httptest.NewRecorder(), request(tilehttp.HandoverPath, again.body))
		require.Equal(t, want, *got)
	})
}

func FuzzHandoverReply(f *testing.F) {
	f.Add([]byte(`{"v":1,"serving":true}`))
	f.Add([]byte(`{"v":1,"error":{"code":"lost","tile":"85283473fffffff","epoch":7,"contact":"b:1"}}`))
	f.Add([]byte(`{"v":1,"serving":true,"error":{"code":"ending"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		client, err := tilehttp.NewClient(tilehttp.Config{}.With(tilehttp.Tuning{Transport: oneReply(b)}))
		require.NoError(t, err)
		err = client.Handover(t.Context(), given("x:1"))
		if err == nil {
			require.Contains(t, string(bytes.ToLower(b)), "serving")
		}
		if r, ok := errors.AsType[*tile.RedirectError](err); ok {
			require.Equal(t, here, r.Tile)
		}
		if l, ok := errors.AsType[*fence.LostError](err); ok {
			require.Equal(t, here, l.Tile)
		}
	})
}

// bell is the smallest game.
type bell struct{}

func (bell) Restore([]byte) error { return nil }
func (bell) Resolve(_ fence.Tick, in []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for range in {
		events, outcomes = append(events, []byte("ring")), append(outcomes, stream.Applied)
	}
	return events, outcomes
}
func (bell) Apply(fence.Tick, [][]byte) error { return nil }
func (bell) Snapshot() ([]byte, error)        { return nil, nil }

// A tile that is accepted over HTTP is served by the host that accepted it.
func TestHostAcceptsOverHTTP(t *testing.T) {
	store := memfence.New()
	seams := tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store)}
	ctx, stop := context.WithCancel(t.Context())
	type process struct {
		host    *tilehost.Host
		contact string
		ended   chan error
	}
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()
	seams.Handover = client.Handover
	start := func() process {
		mux := http.NewServeMux()
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		p := process{contact: server.Listener.Addr().String(), ended: make(chan error, 1)}
		p.host, err = tilehost.New(p.contact, seams, func(fence.TileID) (tile.Rules, error) { return bell{}, nil },
			&tilehost.Config{Tile: tile.Config{TickInterval: 10 * time.Millisecond}})
		require.NoError(t, err)
		mux.Handle(tilehttp.Path, handler(t, p.host))
		mux.Handle(tilehttp.HandoverPath, tilehttp.HandoverHandler(p.host, nil))
		go func() { p.ended <- p.host.Run(ctx) }()
		return p
	}
	a, b := start(), start()
	require.NoError(t, a.host.Own(here))
	require.NoError(t, a.host.Await(t.Context(), here))
	s, _ := a.host.TileStatus(here)
	h := tile.Handover{Tile: here, Epoch: s.Epoch, Position: s.Position, From: a.contact, To: b.contact}
	require.NoError(t, client.Handover(t.Context(), h))
	s, _ = b.host.TileStatus(here)
	require.Equal(t, tile.Serving, s.State)
	require.NoError(t, client.Handover(t.Context(), h), "twice is no error")

	h.To = a.contact // too late: the giver's epoch has passed
	var moved *tile.RedirectError
	require.ErrorAs(t, client.Handover(t.Context(), h), &moved)
	assert.Equal(t, b.contact, moved.Contact)
	o, err := client.Forward(t.Context(), b.contact, tile.Intent{Tile: here})
	require.NoError(t, err)
	assert.Equal(t, stream.Applied, o.Outcome)
	stop()
	require.NoError(t, <-a.ended)
	require.NoError(t, <-b.ended)
	require.ErrorIs(t, client.Handover(t.Context(), given(b.contact)), tile.ErrHostEnded)
}

// oneReply answers every request.
type oneReply []byte

func (b oneReply) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(b)), Request: r,
		Header: http.Header{}}, nil
}
