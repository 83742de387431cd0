package tilehttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// queueing is a Submitter that queues the intents of here, and answers when the test says so.
type queueing struct {
	tilehttp.SubmitterFunc
	queued chan func(tile.Result, error)
}

func (q *queueing) Queue(_ context.Context, in tile.Intent, answered func(tile.Result, error)) error {
	if in.Tile != here {
		return &tile.RedirectError{Tile: in.Tile}
	}
	q.queued <- answered
	return nil
}

func (q *queueing) handler(t *testing.T) *tilehttp.Handler {
	t.Helper()
	h, err := tilehttp.NewHandler(q, tilehttp.HandlerConfig{Queue: q.Queue}.With(tilehttp.Tuning{MaxInFlight: 4}))
	require.NoError(t, err)
	return h
}

// TestIntentsAreQueued: one that was queued gets its answer without a call of Submit, which is asked what became of one
// that was not, or that was sent away from the queue. An answer that comes after the connection is dropped.
func TestIntentsAreQueued(t *testing.T) {
	q := &queueing{queued: make(chan func(tile.Result, error), 1)}
	q.SubmitterFunc = func(_ context.Context, in tile.Intent) (tile.Result, error) {
		return tile.Result{}, &tile.RedirectError{Tile: in.Tile, Epoch: 7, Contact: "b:1"}
	}
	h := q.handler(t)
	server := httptest.NewServer(h)
	defer server.Close()
	client, contact := newClient(t, nil), server.Listener.Addr().String()
	type result struct {
		tile.Result
		err error
	}
	forward := func(in tile.Intent) <-chan result {
		done := make(chan result, 1)
		go func() {
			outcome, err := client.Forward(context.WithoutCancel(t.Context()), contact, in)
			done <- result{outcome, err}
		}()
		return done
	}
	done := forward(tile.Intent{Tile: here})
	(<-q.queued)(tile.Result{Outcome: stream.Fizzled, Why: "<the door>"}, nil)
	assert.Equal(t, result{Result: tile.Result{Outcome: stream.Fizzled, Why: "<the door>"}}, <-done)
	done = forward(tile.Intent{Tile: here})
	(<-q.queued)(tile.Result{}, tile.ErrOverloaded)
	require.ErrorIs(t, (<-done).err, tile.ErrOverloaded)
	for _, in := range []tile.Intent{{Tile: here}, {Tile: here + 1}} {
		done = forward(in)
		if in.Tile == here {
			(<-q.queued)(tile.Result{}, fmt.Errorf("left: %w", &tile.RedirectError{Tile: here}))
		}
		away, ok := errors.AsType[*tile.RedirectError]((<-done).err)
		require.True(t, ok)
		assert.Equal(t, tile.RedirectError{Tile: in.Tile, Epoch: 7, Contact: "b:1"}, *away)
	}
	for _, err := range []error{nil, &tile.RedirectError{Tile: here}} {
		done = forward(tile.Intent{Tile: here})
		answered := <-q.queued
		client.Close()
		require.Error(t, (<-done).err)
		require.NoError(t, h.Drain(t.Context()))
		answered(tile.Result{Outcome: stream.Applied}, err)
		h = q.handler(t)
		server.Config.Handler = h
		client = newClient(t, nil)
	}
}

// TestATileThatIsFrozenKeepsNoPlaces: intents that its owner does not come to take none on the connection from those of
// other tiles when their gateway has given them up.
func TestATileThatIsFrozenKeepsNoPlaces(t *testing.T) {
	q := &queueing{queued: make(chan func(tile.Result, error), 8)}
	q.SubmitterFunc = func(context.Context, tile.Intent) (tile.Result, error) {
		return tile.Result{Outcome: stream.Applied}, nil
	}
	h := q.handler(t)
	server := httptest.NewServer(h)
	defer server.Close()
	client, contact := newClient(t, nil), server.Listener.Addr().String()
	for range 2 {
		var frozen sync.WaitGroup
		for range 4 {
			frozen.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := client.Forward(ctx, contact, tile.Intent{Tile: here})
				assert.ErrorIs(t, err, fence.ErrUnknownOutcome)
			})
		}
		frozen.Wait()
		waittest.Until(t, func() bool { // the server's clock may be behind the client's
			outcome, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here + 1})
			return err == nil && outcome.Outcome == stream.Applied
		}, 20*time.Second, 10*time.Millisecond)
	}
	for range 8 {
		// Too late: no caller waits, and no place is given back twice.
		(<-q.queued)(tile.Result{Outcome: stream.Applied}, nil)
	}
	outcome, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here + 1})
	require.NoError(t, err)
	require.Equal(t, stream.Applied, outcome.Outcome)
}

// TestADeadlineIsCountedOnce: an intent that its tile sends away has what is left of its gateway's time, not all of it
// once more.
func TestADeadlineIsCountedOnce(t *testing.T) {
	const within, spent = time.Minute, 100 * time.Millisecond
	q := &queueing{queued: make(chan func(tile.Result, error), 1)}
	left := make(chan time.Duration, 1)
	q.SubmitterFunc = func(ctx context.Context, _ tile.Intent) (tile.Result, error) {
		until, ok := ctx.Deadline()
		assert.True(t, ok)
		left <- time.Until(until)
		return tile.Result{Outcome: stream.Applied}, nil
	}
	server := httptest.NewServer(q.handler(t))
	defer server.Close()
	client := newClient(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := client.Forward(ctx, server.Listener.Addr().String(), tile.Intent{Tile: here})
		done <- err
	}()
	answered := <-q.queued
	time.Sleep(spent) // in the queue
	answered(tile.Result{}, &tile.RedirectError{Tile: here})
	assert.LessOrEqual(t, <-left, within-spent)
	require.NoError(t, <-done)
}

// TestOriginTravels: a tile server knows the servers' intents from players' of any name.
func TestOriginTravels(t *testing.T) {
	origins := make(chan tile.Origin, 1)
	submit := func(_ context.Context, in tile.Intent) (tile.Result, error) {
		origins <- in.Origin
		return tile.Result{Outcome: stream.Applied}, nil
	}
	h, err := tilehttp.NewHandler(tilehttp.SubmitterFunc(submit), nil)
	require.NoError(t, err)
	server := httptest.NewServer(h)
	defer server.Close()
	client := newClient(t, nil)
	for _, origin := range []tile.Origin{tile.OriginPlayer, tile.OriginServer} {
		in := tile.Intent{Tile: here, Actor: "!courier", Origin: origin, Admitted: time.UnixMilli(1000)}
		_, err := client.Forward(t.Context(), server.Listener.Addr().String(), in)
		require.NoError(t, err)
		assert.Equal(t, origin, <-origins)
	}
}

// Strangers cannot fill the disk of a tile server with lines about their refusal.
func TestRefusalsAreLoggedInSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		cfg := &tilehttp.HandlerConfig{Keys: tilehttp.Keys{bytes.Repeat([]byte("k"), 32)}, Contact: "a:1",
			Logger: slog.New(slog.NewTextHandler(&lines, nil))}
		intents, err := tilehttp.NewHandler(tilehttp.SubmitterFunc(nil), cfg)
		require.NoError(t, err)
		for method, h := range map[string]http.Handler{http.MethodGet: intents,
			http.MethodPost: tilehttp.HandoverHandler(nil, cfg)} {
			lines.Reset()
			for range 200 {
				w, r := httptest.NewRecorder(), request("/", `{"v":1}`)
				r.Method = method
				h.ServeHTTP(w, r)
				require.Equal(t, http.StatusUnauthorized, w.Code)
			}
			assert.Equal(t, 10, bytes.Count(lines.Bytes(), []byte("\n")), "at once")
		}
	})
}
